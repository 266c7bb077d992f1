"""`generate`: one prompt, one answer, nothing kept."""

import sys
from collections.abc import Iterator
from typing import TextIO

from draftlight.chat.prompt import ChatMessage, NotAChatModel, build_prompt
from draftlight.chat.service import LoadedPair
from draftlight.cli.arguments import Arguments
from draftlight.cli.choices import asked_mode, pair_settings, sampling_params, seed_or_fresh
from draftlight.cli.exactness import telling_of_exactness
from draftlight.cli.interrupts import cancelled_by_ctrl_c
from draftlight.cli.json_lines import plain_value, write_line
from draftlight.cli.parts import Parts
from draftlight.cli.rendering import renderer_for, say, say_figures, say_step
from draftlight.engine.cancel import CancelToken
from draftlight.engine.decoding import GenerationRequest
from draftlight.engine.events import Event, GenerationFinished, ModelLoading, StopReason
from draftlight.errors import UserError

INTERRUPTED = 130  # what a shell reports for a program that Ctrl-C ended


def run(arguments: Arguments, parts: Parts) -> int:
    """Answer the prompt and return the exit status: 0, or 130 where Ctrl-C stopped it. Raises UserError."""
    text = prompt_text(arguments.prompt, sys.stdin)
    cancel = CancelToken()
    with cancelled_by_ctrl_c(cancel):
        pair = _load(arguments, parts, cancel)
        try:
            request = _request(arguments, pair, text)
            events = pair.decoder.generate(request, cancel)
            show = _show_json if arguments.json else _show_text
            finished = show(events, request, pair)
        finally:
            pair.close()
    return INTERRUPTED if finished.reason is StopReason.CANCELLED else 0


def prompt_text(argument: str, stream: TextIO) -> str:
    """Return the prompt, read from `stream` where the argument is `-`. Raises UserError where it is not text."""
    try:
        text = stream.read() if argument == "-" else argument
        text.encode()
    except UnicodeError:
        raise UserError("The prompt is not UTF-8 text.", "Save it as UTF-8 and try again.") from None
    if "\0" in text:
        raise UserError("The prompt holds a NUL character.", "Take it out: a file like that is rarely text.")
    if not text.strip():
        raise UserError("The prompt is empty.", "Write what the model should answer.")
    return text


def _load(arguments: Arguments, parts: Parts, cancel: CancelToken) -> LoadedPair:
    for step in telling_of_exactness(parts.load, arguments)(pair_settings(arguments), cancel):
        if not isinstance(step, ModelLoading):
            say_step(None)
            return step
        if arguments.json:
            write_line(sys.stdout, step)
        else:
            say_step(step)
    raise KeyboardInterrupt  # cancelled before the models were ready


def _request(arguments: Arguments, pair: LoadedPair, text: str) -> GenerationRequest:
    vocabulary = pair.vocabulary
    if arguments.raw:
        tokens = tuple(vocabulary.encode(text))
        if vocabulary.add_bos and vocabulary.bos is not None:
            tokens = (vocabulary.bos, *tokens)
    else:
        messages = [ChatMessage("system", arguments.system)] if arguments.system else []
        messages.append(ChatMessage("user", text))
        reserve = min(arguments.max_tokens, pair.decoder.n_ctx // 4)
        try:
            tokens = build_prompt(vocabulary, messages, pair.decoder.n_ctx, reserve).tokens
        except NotAChatModel as error:
            raise UserError(f"{pair.settings.target.name}: {error.sentence}", error.remedy) from error
    return GenerationRequest(
        prompt=tokens,
        sampling=sampling_params(arguments),
        seed=seed_or_fresh(arguments.seed),
        draft_length=arguments.draft_length,
        max_new_tokens=arguments.max_tokens,
        stop=tuple(arguments.stop),
        mode=asked_mode(arguments),
    )


def _show_json(events: Iterator[Event], request: GenerationRequest, pair: LoadedPair) -> GenerationFinished:
    """Write every event as a line; the last one, `finished`, also says how it was made."""
    for event in events:
        if isinstance(event, GenerationFinished):
            settings = {**plain_value(pair.settings), **plain_value(request), "n_ctx": pair.decoder.n_ctx}
            exact_widths = pair.decoder.exact_widths
            settings["mode"] = pair.decoder.mode_for(request)
            settings["exact_widths"] = None if exact_widths is None else sorted(exact_widths)
            write_line(sys.stdout, event, settings=settings, notices=pair.notices)
            return event
        write_line(sys.stdout, event)
    raise AssertionError("a generation ends with GenerationFinished")


def _show_text(events: Iterator[Event], request: GenerationRequest, pair: LoadedPair) -> GenerationFinished:
    """Write the answer to the standard output, notices and figures to the standard error."""
    for notice in pair.notices:
        say(notice)
    renderer = renderer_for(sys.stdout)
    for event in events:
        renderer.show(event)
        if isinstance(event, GenerationFinished):
            say_figures(event, pair.decoder.mode_for(request), f"seed {request.seed}")
            return event
    raise AssertionError("a generation ends with GenerationFinished")
