"""What is asked: prompts from a file in MT-bench's form, spread over their kinds, and text to put before them."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import cycle, zip_longest
from pathlib import Path
from typing import Any

from draftlight.errors import UserError

_NO_KIND = "other"
_READ = "I have read it. What would you like to know?"


@dataclass(frozen=True, slots=True)
class BenchPrompt:
    """One question: the first turn of an entry; what a second turn asks depends on the answer to the first."""

    id: str
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Turn:
    """One message before the answer; `role` is "user" or "assistant", as chat templates call them."""

    role: str
    text: str


Writer = Callable[[Sequence[Turn]], tuple[int, ...]]
"""Turns a conversation into the tokens of a prompt."""


@dataclass(frozen=True, slots=True)
class WrittenPrompt:
    """A question as the model gets it."""

    id: str
    kind: str
    tokens: tuple[int, ...]


def read_prompts(file: Path) -> tuple[BenchPrompt, ...]:
    """Read a JSON Lines file of {"question_id", "category", "turns": [...]}. Raises UserError, naming the line."""
    try:
        lines = file.read_text("utf-8").splitlines()
    except FileNotFoundError:
        raise UserError(f"There is no file {file}.", "Name a file of prompts with --prompts FILE.") from None
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}.", "Name another file of prompts.") from error
    except UnicodeDecodeError:
        raise UserError(f"{file} is not UTF-8 text.", "Save it as UTF-8.") from None
    prompts = tuple(_prompt(line, f"{file}, line {n}", n) for n, line in enumerate(lines, 1) if line.strip())
    if not prompts:
        raise UserError(f"{file} holds no prompt.", "Write one JSON object a line.")
    twice = [name for name, n in Counter(prompt.id for prompt in prompts).items() if n > 1]
    if twice:
        raise UserError(f"{file} holds two prompts with the question_id {twice[0]!r}.", "Give each its own.")
    return prompts


def _prompt(line: str, place: str, number: int) -> BenchPrompt:
    try:
        entry: Any = json.loads(line)
    except (ValueError, RecursionError):
        raise UserError(f"{place}: this is not JSON.", "Each line is one JSON object.") from None
    turns = entry.get("turns") if isinstance(entry, dict) else None
    if not (isinstance(turns, list) and turns and isinstance(turns[0], str) and turns[0].strip()):
        raise UserError(f"{place}: this has no question.", 'Write it as {"category": "...", "turns": ["question"]}.')
    return BenchPrompt(str(entry.get("question_id", number)), str(entry.get("category", _NO_KIND)), turns[0])


def spread(prompts: Sequence[BenchPrompt], limit: int) -> tuple[BenchPrompt, ...]:
    """Return `limit` prompts, one of each kind in turn: every kind has its share, also where a run ends early."""
    kinds: dict[str, list[BenchPrompt]] = {}
    for prompt in prompts:
        kinds.setdefault(prompt.kind, []).append(prompt)
    in_turn = [prompt for row in zip_longest(*kinds.values()) for prompt in row if prompt is not None]
    return tuple(in_turn[:limit])


def written(prompt: BenchPrompt, write: Writer, before: Iterable[BenchPrompt] = (), n_tokens: int = 0) -> WrittenPrompt:
    """Return the prompt's tokens, with so many earlier turns that it has about `n_tokens`.

    Those turns are the texts of `before`, each given to read and said to be read; the last is cut to fit. Where
    `before` is too short it is taken again and again, so that a text may recur, as documents do.
    """
    question = Turn("user", prompt.text)
    turns: list[Turn] = []

    def n_with(text: str) -> int:
        return len(write([*turns, *_given_to_read(text), question]))

    texts = cycle([each.text for each in before])
    for text in texts:
        room, whole = n_tokens - n_with(""), n_with(text) - n_with("")
        if room <= 0:
            break
        turns += _given_to_read(text if whole <= room else text[: len(text) * room // whole].rsplit(" ", 1)[0])
    return WrittenPrompt(prompt.id, prompt.kind, write([*turns, question]))


def _given_to_read(text: str) -> tuple[Turn, Turn]:
    return Turn("user", f"Read this first.\n\n{text}"), Turn("assistant", _READ)
