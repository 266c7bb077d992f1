"""`chat`: a conversation in the terminal, kept in the same history as the window's."""

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from typing import TypeVar

from draftlight import paths
from draftlight.chat.service import (
    ChatEvent,
    ChatService,
    GenerationOptions,
    MessageSaved,
    PairReady,
    SaveFailed,
    ThreadsChanged,
    TurnsDropped,
)
from draftlight.chat.trace import load_events
from draftlight.cli import arguments as command_line
from draftlight.cli.arguments import Arguments
from draftlight.cli.choices import asked_mode, pair_settings, sampling_params
from draftlight.cli.exactness import telling_of_exactness
from draftlight.cli.interrupts import cancelled_by_ctrl_c
from draftlight.cli.parts import Parts
from draftlight.cli.rendering import renderer_for, say, say_figures, say_step, visible
from draftlight.engine.cancel import CancelToken
from draftlight.engine.events import Event, GenerationFinished, ModelLoading
from draftlight.errors import UserError
from draftlight.history.records import Message, Role, Status
from draftlight.history.store import HistoryStore

_QUIT = 0
_INTERRUPTED = 130
_PROMPT = "> "
_ENDINGS = {
    Status.COMPLETE: "",
    Status.STOPPED: "(stopped)",
    Status.FAILED: "(failed)",
    Status.INTERRUPTED: "(the program ended here)",
    Status.STREAMING: "(still being written by another window)",
}


def run(arguments: Arguments, parts: Parts) -> int:
    """Load the pair and chat until the input ends; return the exit status. Raises UserError where nothing loads."""
    with closing(parts.open_store()) as store:
        for notice in store.notices:
            say(notice)
        if not store.read_only:
            store.recover_interrupted()
        service = ChatService(parts.open_store, telling_of_exactness(parts.load, arguments))
        try:
            chat = TerminalChat(arguments, store, service)
            chat.load()
            return chat.converse()
        finally:
            service.unload()


class TerminalChat:
    """Reads lines: a message is answered, a line that starts with / is a command."""

    def __init__(self, arguments: Arguments, store: HistoryStore, service: ChatService) -> None:
        """Start with a new conversation, which is made when its first message is sent."""
        self._store = store
        self._service = service
        self._pair = pair_settings(arguments)
        self._system = arguments.system
        self._conversation_id: int | None = None
        self._options = GenerationOptions(
            sampling=sampling_params(arguments),
            draft_length=arguments.draft_length,
            seed=arguments.seed,
            max_new_tokens=arguments.max_tokens,
            mode=asked_mode(arguments),
        )
        self._commands: dict[str, tuple[Callable[[str], None], str, str]] = {
            "help": (self._help, "", "this list"),
            "new": (self._new, "", "begin a new conversation"),
            "list": (self._list, "", "the conversations on disk"),
            "open": (self._open, "N", "go on with conversation N"),
            "k": (self._set_draft_length, "N|auto", "draft length K, 0 to 16; 0 is plain decoding"),
            "temp": (self._set_temperature, "T", "temperature; 0 is greedy"),
            "seed": (self._set_seed, "[S]", "seed of the next answers; without S a fresh one each"),
            "quit": (self._quit, "", "leave; so does the end of the input"),
        }

    def load(self) -> None:
        """Load the pair, saying what is being done. Raises UserError; KeyboardInterrupt where Ctrl-C stopped it."""
        cancel = CancelToken()
        ready = False
        with cancelled_by_ctrl_c(cancel):
            for event in self._service.load(self._pair, cancel):
                ready = ready or isinstance(event, PairReady)
                self._say_aside(event)
        if not ready:
            raise KeyboardInterrupt

    def converse(self) -> int:
        """Answer lines until the input ends, /quit, or Ctrl-C twice at the prompt; return the exit status."""
        say(f"The chats are kept in {paths.chats_file()}. /help lists the commands, Ctrl-C stops an answer.")
        legend = renderer_for(sys.stdout).legend()
        if legend:
            say(f"Colours: {legend}.")
        asked_to_quit = False
        while True:
            try:
                line = _read_line()
            except EOFError:
                return _QUIT
            except KeyboardInterrupt:
                if asked_to_quit:
                    return _INTERRUPTED
                asked_to_quit = True
                say("\nCtrl-C again leaves.")
                continue
            asked_to_quit = False
            try:
                self._take(line)
            except UserError as error:
                say("\n".join([str(error), *error.notes]))
            except _Left:
                return _QUIT

    def _take(self, line: str) -> None:
        """Do what one line asks for. Raises UserError; _Left after /quit."""
        try:
            line.encode()
        except UnicodeEncodeError:
            raise UserError(
                "That line holds bytes that are no text in the terminal's encoding.", "Set the terminal to UTF-8."
            ) from None
        name, _, rest = line.strip().partition(" ")
        if name.startswith("/"):
            if name[1:] not in self._commands:
                raise UserError(f"There is no command {name}.", "/help lists the commands.")
            command, _, _ = self._commands[name[1:]]
            command(rest.strip())
        elif name:
            self._answer(line.strip())

    def _answer(self, text: str) -> None:
        if self._conversation_id is None:
            self._conversation_id = self._store.create_conversation(self._system).id
        cancel = CancelToken()
        renderer = renderer_for(sys.stdout)
        mode = ""
        with cancelled_by_ctrl_c(cancel):
            for event in self._service.send(self._conversation_id, text, self._options, cancel):
                if isinstance(event, MessageSaved) and event.role == Role.ASSISTANT:
                    made = self._store.message(event.message_id).settings
                    mode = "" if made is None else made.mode
                if not isinstance(event, Event):
                    self._say_aside(event)
                    continue
                renderer.show(event)
                if isinstance(event, GenerationFinished):
                    say_figures(event, mode)

    def _say_aside(self, event: ChatEvent) -> None:
        """Say on the standard error what is not part of the answer."""
        match event:
            case ModelLoading():
                say_step(event)
            case PairReady():
                say_step(None)
                for notice in event.notices:
                    say(notice)
            case TurnsDropped():
                say(f"The conversation is too long for the context: its {event.n_turns} oldest turns are left out.")
            case SaveFailed():
                say(event.sentence)
            case ThreadsChanged():
                say(event.state.reason or f"All {event.state.n_all} threads are used again.")

    def _help(self, _rest: str) -> None:
        for name, (_, value, meaning) in self._commands.items():
            sys.stdout.write(f"/{name} {value}".ljust(16) + meaning + "\n")

    def _new(self, _rest: str) -> None:
        self._conversation_id = None
        say("A new conversation.")

    def _list(self, _rest: str) -> None:
        conversations = self._store.conversations()
        if not conversations:
            say("There are no conversations yet.")
        for conversation in conversations:
            mark = "*" if conversation.id == self._conversation_id else " "
            sys.stdout.write(f"{mark}{conversation.id:5}  {visible(conversation.title)}\n")

    def _open(self, rest: str) -> None:
        conversation = self._store.conversation(_value(int, rest, "a conversation's number"))
        self._conversation_id = conversation.id
        for message in self._store.messages(conversation.id):
            self._show(message)

    def _show(self, message: Message) -> None:
        """Show a message as it was: an answer with the fates of its tokens."""
        if message.role is Role.USER:
            sys.stdout.write(f"{_PROMPT}{visible(message.text)}\n")
            return
        try:
            self._replay(tuple(load_events(self._store.rounds(message.id))))
        except UserError as error:  # damaged, or a newer version's
            say(f"The next answer is shown without its colours. {error}")
            sys.stdout.write(visible(message.text) + "\n")
        ending = f"{_ENDINGS[message.status]} {message.error}".strip()
        if ending:
            sys.stdout.write(ending + "\n")

    def _replay(self, events: Sequence[Event]) -> None:
        """Show an answer from its trace, which has no end where the program was killed."""
        renderer = renderer_for(sys.stdout)
        for event in events:
            renderer.show(event)
        if not events or not isinstance(events[-1], GenerationFinished):
            renderer.end()

    def _set_draft_length(self, rest: str) -> None:
        self._options = replace(self._options, draft_length=_value(command_line.draft_length, rest, "a draft length"))

    def _set_temperature(self, rest: str) -> None:
        temperature = _value(command_line.temperature, rest, "a temperature")
        self._options = replace(self._options, sampling=replace(self._options.sampling, temperature=temperature))

    def _set_seed(self, rest: str) -> None:
        self._options = replace(self._options, seed=_value(command_line.seed, rest, "a seed") if rest else None)

    def _quit(self, _rest: str) -> None:
        raise _Left


class _Left(Exception):
    """/quit was typed."""


_Value = TypeVar("_Value")


def _value(read: Callable[[str], _Value], text: str, what: str) -> _Value:
    """Read a command's value. Raises UserError."""
    try:
        return read(text)
    except (ValueError, argparse.ArgumentTypeError):
        raise UserError(f"{text!r} is not {what}.", "/help says what can be given.") from None


def _read_line() -> str:
    """Read a line, with editing and a prompt where a person sits there. Raises EOFError at the input's end."""
    if sys.stdin.isatty() and sys.stdout.isatty():
        with suppress(ImportError):  # Windows' own line editing does without
            import readline  # noqa: F401, PLC0415 - gives input() editing; elsewhere it may write to a pipe
        return input(_PROMPT)
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line
