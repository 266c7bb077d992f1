"""`forge`: makes a draft model for a target that has none, and says beforehand what that could bring."""

import os
import shlex
import signal
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from draftlight.cli.arguments import FORGE_MINUTES, Arguments, program_name
from draftlight.cli.choices import starter_target
from draftlight.cli.generate import INTERRUPTED
from draftlight.cli.interrupts import cancelled_by_ctrl_c
from draftlight.cli.parts import Parts
from draftlight.cli.rendering import ProgressBar, say
from draftlight.engine.cancel import CancelToken
from draftlight.errors import UserError
from draftlight.forge.client import Control, ForgeFailed, discard
from draftlight.forge.figures import card_sentence, is_worth_it, made_of, outlook_sentences, tuned_sentences
from draftlight.forge.reports import (
    AcceptanceMeasured,
    ChatsWritten,
    Failed,
    Forged,
    Outlook,
    Report,
    StageBegun,
    Trained,
    Tuned,
    as_line,
)
from draftlight.forge.request import ForgeRequest, request_for, unfinished

_NOT_MADE = 1  # because it would only slow answers down
_SAMPLE = 60  # characters


def run(arguments: Arguments, parts: Parts) -> int:
    """Make the draft model, or tell the outlook alone; return the exit status. Raises UserError.

    That is 0, 1 where it would only slow answers down and nobody insisted, 130 where Ctrl-C stopped it.
    """
    request = request_for(
        starter_target() if arguments.target is None else arguments.target,
        minutes=FORGE_MINUTES if arguments.minutes is None else arguments.minutes,
        size=arguments.size,
        out=arguments.out,
        recipe=arguments.recipe,
        weights=arguments.weights,
    )
    request = replace(request, only_outlook=arguments.outlook)
    if not arguments.outlook:
        _settle_what_was_begun(request, arguments)
    cancel, control = CancelToken(), Control()
    screen = JsonLines() if arguments.json else Screen(request)
    try:
        with cancelled_by_ctrl_c(cancel), closing(parts.forge(request, cancel, control)) as reports:
            for report in reports:
                screen.show(report)
                if isinstance(report, Outlook) and not _is_wanted(report, arguments, control):
                    reports.close()
                    discard(request)
                    return _NOT_MADE
    except ForgeFailed as failed:
        if failed.resumable:
            failed.add_note(f"What was done is kept. Go on with: {_command(arguments, '--resume')}")
        raise
    finally:
        screen.clear()
    return _stopped(request, arguments) if cancel.cancelled and not screen.is_done else 0


def _settle_what_was_begun(request: ForgeRequest, arguments: Arguments) -> None:
    """Delete an earlier run or go on with it, as was asked. Raises UserError where neither was."""
    if arguments.start_over:
        discard(request)
        return
    begun = unfinished(request)
    if begun is None:
        if arguments.resume:
            say(f"There is no unfinished run for {request.target.name}, so a new one begins.")
    elif arguments.resume:
        if _wishes(begun) != _wishes(request):
            say(f"The run goes on as it was begun: {_wishes(begun)}.")
    else:
        raise UserError(
            f"A draft model for {request.target.name} was begun and did not come to its end.",
            f"Go on with it: {_command(arguments, '--resume')}\nOr begin anew: {_command(arguments, '--start-over')}",
        )


def _wishes(request: ForgeRequest) -> str:
    """Say what decides how the draft model turns out."""
    recipe = f"{request.minutes:g} minutes, shape {request.size}" if request.recipe is None else f"{request.recipe}"
    return recipe if request.weights is None else f"{recipe}, weights of {request.weights}"


def _is_wanted(outlook: Outlook, arguments: Arguments, control: Control) -> bool:
    """Whether the run is to go on from here; asks where it would slow answers down and somebody is there."""
    if is_worth_it(outlook) or arguments.anyway or arguments.resume or arguments.outlook:
        return True
    if not arguments.json and sys.stdin.isatty() and sys.stderr.isatty():
        control.pause()
        if _agrees("Make it anyway? [y/N] "):
            control.go_on()
            return True
        return False
    say(f"It was not made. To make it anyway: {_command(arguments, '--anyway')}")
    return False


def _agrees(question: str) -> bool:
    """Ask on the terminal; an end of the input and Ctrl-C are a no."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.stderr.write(question)
    sys.stderr.flush()
    try:
        return input().strip().lower() in {"y", "yes"}
    except (EOFError, KeyboardInterrupt):
        sys.stderr.write("\n")
        return False
    finally:
        signal.signal(signal.SIGINT, before)


def _stopped(request: ForgeRequest, arguments: Arguments) -> int:
    kept = f" What was done is kept. Go on with: {_command(arguments, '--resume')}" if unfinished(request) else ""
    say(f"Stopped.{kept}")
    return INTERRUPTED


class JsonLines:
    """The reports as they come, one a line."""

    def __init__(self) -> None:
        """Start before the first."""
        self.is_done = False

    def show(self, report: Report) -> None:
        """Show one report."""
        self.is_done |= isinstance(report, Forged | Tuned)
        sys.stdout.write(as_line(report) + "\n")
        sys.stdout.flush()

    def clear(self) -> None:
        """Leave everything as it is."""


class Screen:
    """The reports for a reader: how far it is on the standard error, what came of it on the standard output."""

    def __init__(self, request: ForgeRequest) -> None:
        """Start before the first."""
        self.is_done = False
        self._request = request
        self._bar = ProgressBar(sys.stderr)
        self._accepted = ""

    def show(self, report: Report) -> None:
        """Show one report."""
        match report:
            case StageBegun():
                self._tell(f"{report.sentence.rstrip('.')}.")
                self._bar = ProgressBar(sys.stderr)
            case Outlook():
                self._write(*outlook_sentences(report))
            case ChatsWritten():
                sample = " ".join(report.sample.split())[:_SAMPLE]
                self._bar.show(report.n_tokens, report.n_wanted, sample, report.seconds_left)
            case Trained():
                now = f"loss {report.loss:.2f}{self._accepted}"
                self._bar.show(report.n_tokens, report.n_wanted, now, report.seconds_left)
            case AcceptanceMeasured():
                share = f"{report.acceptance * 100:.0f} %"
                self._accepted = f", {share} foretold"
                efficiency = f"{report.block_efficiency:.2f} tokens a verify at K = 3"
                figures = f"{share} of the target's tokens are foretold, {efficiency}"
                self._tell(f"After {report.n_tokens:,} tokens, on held-out chats: {figures}.")
            case Forged():
                self.is_done = True
                self._write(
                    f"The draft model for {self._request.target.name} is made ({made_of(report.card)}).",
                    f"It {card_sentence(report.card)}.",
                    *self._made(report.path),
                )
            case Tuned():
                self.is_done = True
                self._write(*tuned_sentences(report))
                if report.path is not None:
                    self._write(*self._made(report.path))
            case Failed():
                raise AssertionError("forge() raises it")

    def clear(self) -> None:
        """Take the bar away."""
        self._bar.clear()

    def _made(self, path: Path) -> tuple[str, str]:
        chat = ("chat", "--target", str(self._request.target), "--draft", str(path))
        return str(path), f"Chat with it: {program_name()} {_quoted(*chat)}"

    def _tell(self, sentence: str) -> None:
        self._bar.clear()
        say(sentence)

    def _write(self, *lines: str) -> None:
        self._bar.clear()
        sys.stdout.write("\n".join(lines) + "\n")
        sys.stdout.flush()


def _command(arguments: Arguments, option: str) -> str:
    """Return what to type to ask for the same with this option."""
    asked = ["forge"] if arguments.target is None else ["forge", str(arguments.target)]
    chosen = {
        "--minutes": None if arguments.minutes is None else f"{arguments.minutes:g}",
        "--size": None if arguments.size == "auto" else arguments.size,
        "--recipe": arguments.recipe,
        "--out": arguments.out,
        "--weights": arguments.weights,
    }
    for name, value in chosen.items():
        asked += [] if value is None else [name, str(value)]
    return f"{program_name()} {_quoted(*asked, option)}"


def _quoted(*words: str) -> str:
    """Return the words as they are typed into a shell."""
    return subprocess.list2cmdline(words) if os.name == "nt" else shlex.join(words)
