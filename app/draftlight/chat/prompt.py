"""Messages to tokens, by the model's own chat template. Knows no model: only its vocabulary.

What a person or a model wrote never becomes a control token. Inside the texts, every spelling of a control token is
broken with a marker before the template runs; only spellings without a marker, which the template itself wrote, become
control tokens; then the markers are taken out again, so that all other text is tokenised as it stands.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from draftlight.chat.template import BadChatTemplate, compiled_template
from draftlight.errors import UserError

MARKER = "\ufdd0"  # a noncharacter: Unicode sets it aside for a program's own use
_NONCHARACTERS = re.compile("[\ufdd0-\ufdef]")
_SURROGATES = re.compile("[\ud800-\udfff]")


class ChatVocabulary(Protocol):
    """What a prompt needs to know of a model. The llama room's vocabulary fits, and so does a test's."""

    @property
    def control_tokens(self) -> Mapping[str, int]:
        """Ids of the control tokens by their text."""
        ...

    @property
    def add_bos(self) -> bool:
        """Whether prompts begin with `bos`."""
        ...

    @property
    def bos(self) -> int | None:
        """Id of the token that begins a text, if there is one."""
        ...

    @property
    def bos_text(self) -> str:
        """Its text; empty where there is none."""
        ...

    @property
    def eos_text(self) -> str:
        """Text of the token that ends a text; empty where there is none."""
        ...

    @property
    def chat_template(self) -> str | None:
        """The model's chat template, in Jinja."""
        ...

    def encode(self, text: str) -> list[int]:
        """Token ids of plain text: texts of control tokens stay text, no BOS is added."""
        ...


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message of a conversation; `role` is "system" (only the first), "user" or "assistant"."""

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the model is fed. `n_dropped_turns` oldest turns (a question and its answer each) did not fit: `dropped`."""

    tokens: tuple[int, ...]
    n_dropped_turns: int
    dropped: tuple[ChatMessage, ...] = ()


class NotAChatModel(UserError):
    """The model brings no chat template."""


class PromptTooLong(UserError):
    """The last message alone does not fit the context."""


def clean_text(text: str) -> str:
    """Return the text as it can be stored, shown and tokenised.

    Surrogate pairs become the character they stand for; lone surrogates and zero bytes become U+FFFD; the
    noncharacters U+FDD0 to U+FDEF, which are for a program's own use, are dropped. Everything else stays.
    """
    if _SURROGATES.search(text):
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return _NONCHARACTERS.sub("", text.replace("\0", "\ufffd"))


def build_prompt(vocabulary: ChatVocabulary, messages: Sequence[ChatMessage], n_ctx: int, reserve: int) -> Prompt:
    """Turn a conversation into tokens, leaving `reserve` of `n_ctx` tokens free for the answer.

    What does not fit loses its oldest turns, never the system message or the last question.

    Raises NotAChatModel, BadChatTemplate, PromptTooLong.
    """
    if not vocabulary.chat_template:
        raise NotAChatModel(
            "This model has no chat template: it is a base model, which continues text instead of answering.",
            "Choose an instruct model, or continue plain text with: generate --raw.",
        )
    writer = _PromptWriter(vocabulary, vocabulary.chat_template)
    room = max(0, n_ctx - reserve)
    system = [message for message in messages[:1] if message.role == "system"]
    rest = list(messages[len(system) :])
    starts = [0, *(index for index, message in enumerate(rest) if message.role == "user" and index)]

    def tokens_without(n_turns: int) -> tuple[int, ...]:
        return writer.tokens([*system, *rest[starts[n_turns] :]])

    tokens = tokens_without(0)
    if len(tokens) <= room:
        return Prompt(tokens, 0)
    tokens = tokens_without(len(starts) - 1)
    if len(tokens) > room:
        raise PromptTooLong(
            f"The message is too long for the model: {len(tokens):,} tokens, room for {room:,}.",
            "Shorten it, or load the model with a longer context.",
        )
    too_few, enough = 0, len(starts) - 1
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        tried = tokens_without(middle)
        if len(tried) <= room:
            tokens, enough = tried, middle
        else:
            too_few = middle
    return Prompt(tokens, enough, tuple(rest[: starts[enough]]))


class _PromptWriter:
    """Writes prompts for one conversation; a stretch of plain text is tokenised once, however often it comes."""

    def __init__(self, vocabulary: ChatVocabulary, template: str) -> None:
        self._vocabulary = vocabulary
        self._template, self._shows_system = compiled_template(template)
        controls = dict(vocabulary.control_tokens)
        if vocabulary.bos is not None:
            controls.setdefault(vocabulary.bos_text, vocabulary.bos)
        self._controls = _ControlTexts(controls)
        self._known: dict[str, list[int]] = {}

    def tokens(self, messages: Sequence[ChatMessage]) -> tuple[int, ...]:
        """Return the prompt for these messages."""
        tokens: list[int] = []
        for part in self._parts(messages):
            tokens += [part] if isinstance(part, int) else self._encode(part)
        bos = self._vocabulary.bos
        if self._vocabulary.add_bos and bos is not None and tokens[:1] != [bos]:
            tokens.insert(0, bos)
        if not tokens:
            raise BadChatTemplate("The model's chat template wrote nothing.", "Choose another model.")
        return tuple(tokens)

    def _encode(self, text: str) -> list[int]:
        if text not in self._known:
            self._known[text] = self._vocabulary.encode(text)
        return self._known[text]

    def _parts(self, messages: Sequence[ChatMessage]) -> list[str | int]:
        """Return the rendered conversation as plain texts and control token ids.

        A template that cuts or joins texts could make a control token of two harmless halves. So it runs twice, once
        with every possible beginning of one broken; where the control tokens then differ, that second result counts.
        It is not always taken, because it hides marks such as </think> that templates look for in earlier answers.
        """
        if not self._shows_system:
            messages = _with_system_in_question(messages)
        parts = self._split(messages, self._controls.broken)
        strict = self._split(messages, self._controls.all_beginnings_broken)
        same = [part for part in parts if isinstance(part, int)] == [part for part in strict if isinstance(part, int)]
        return parts if same else strict

    def _split(self, messages: Sequence[ChatMessage], broken: Callable[[str], str]) -> list[str | int]:
        vocabulary = self._vocabulary
        guarded = [{"role": str(message.role), "content": broken(clean_text(message.text))} for message in messages]
        rendered = self._template.render(guarded, vocabulary.bos_text, vocabulary.eos_text)
        parts = self._controls.split(rendered)
        plain = (part if isinstance(part, int) else part.replace(MARKER, "") for part in parts)
        return [part for part in plain if part != ""]


def _with_system_in_question(messages: Sequence[ChatMessage]) -> Sequence[ChatMessage]:
    """Put the system message at the head of the first question, for templates that know no system message."""
    if not messages or messages[0].role != "system":
        return messages
    system, *rest = messages
    if not rest or rest[0].role != "user":
        return [ChatMessage("user", system.text), *rest]
    return [ChatMessage("user", f"{system.text}\n\n{rest[0].text}"), *rest[1:]]


class _ControlTexts:
    """Finds texts of control tokens. One of a single character is no mark-up but an ordinary letter, and left alone."""

    def __init__(self, controls: Mapping[str, int]) -> None:
        self._ids = {text: token for text, token in controls.items() if len(text) > 1}
        self._lengths = sorted({len(text) for text in self._ids}, reverse=True)
        seconds: dict[str, set[str]] = {}
        for text in self._ids:
            seconds.setdefault(text[0], set()).add(text[1])
        self._first_letter = _any_of(map(re.escape, seconds))
        # With the second letter looked at too, HTML and code are skipped at the speed of a search.
        self._beginning = _any_of(f"{re.escape(one)}(?={_one_of(others)})" for one, others in seconds.items())

    def _at(self, text: str, start: int) -> str:
        """Return the longest control text that stands at `start`, or an empty one."""
        pieces = (text[start : start + length] for length in self._lengths)
        return next((piece for piece in pieces if piece in self._ids), "")

    def broken(self, text: str) -> str:
        """Return the text with a marker inside each control text."""
        return self._beginning.sub(
            lambda first: first[0] + MARKER if self._at(text, first.start()) else first[0],
            text,
        )

    def all_beginnings_broken(self, text: str) -> str:
        """Return the text with a marker behind each letter that could begin a control text, and before all else.

        Blank space at the edges stays there, for templates that trim.
        """
        lead = len(text) - len(text.lstrip())
        if lead == len(text):
            return text
        return text[:lead] + MARKER + self._first_letter.sub(lambda first: first[0] + MARKER, text[lead:])

    def split(self, text: str) -> Iterator[str | int]:
        """Yield plain stretches and the ids of the control texts between them; of two beginning together the longer."""
        start = position = 0
        while first := self._beginning.search(text, position):
            found = self._at(text, first.start())
            position = first.start() + max(1, len(found))
            if found:
                yield text[start : first.start()]
                yield self._ids[found]
                start = position
        yield text[start:]


def _one_of(letters: Iterable[str]) -> str:
    return "[" + "".join(re.escape(letter) for letter in sorted(letters)) + "]"


def _any_of(patterns: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(patterns) or "(?!)")
