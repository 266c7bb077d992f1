"""How the target's chats begin: the openers of assets/forge/openers.toml, drawn so that all kinds have their share."""

import random
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from draftlight.errors import UserError

_FREE = 0.25  # share of questions that the target begins by itself


@dataclass(frozen=True, slots=True)
class Opener:
    """How a question begins; an empty text leaves the whole question to the target."""

    kind: str
    text: str


def read_openers(file: Path, languages: Sequence[str]) -> tuple[Opener, ...]:
    """Return the openers in these languages, named as the file does. Raises UserError where there are none."""
    known = tomllib.loads(file.read_text("utf-8"))
    found = tuple(
        Opener(kind, text)
        for language in languages
        for kind, texts in known.get(language, {}).items()
        for text in texts
    )
    if not found:
        raise UserError(
            f"There are no openers in {', '.join(languages) or 'no language'}.",
            f"There are some in {', '.join(known)}.",
        )
    return found


def known_languages(file: Path) -> tuple[str, ...]:
    """Return the languages that there are openers in, as the file names them."""
    return tuple(tomllib.loads(file.read_text("utf-8")))


def draw(openers: Sequence[Opener], n: int, dice: random.Random) -> list[Opener]:
    """Return `n` of them: every kind as often as the next, and `_FREE` of them without a text."""
    kinds: dict[str, list[Opener]] = {}
    for opener in openers:
        kinds.setdefault(opener.kind, []).append(opener)
    names = sorted(kinds)
    drawn = []
    for _ in range(n):
        if dice.random() < _FREE:
            drawn.append(Opener("free", ""))
        else:
            drawn.append(dice.choice(kinds[dice.choice(names)]))
    return drawn
