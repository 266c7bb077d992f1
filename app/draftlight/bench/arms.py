"""What is compared: ways for our engine to draft, by name, and other servers."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from draftlight.engine.events import DraftSource
from draftlight.errors import UserError

PLAIN = "plain"
_MAX_DRAFT_LENGTH = 16
_FIXED = re.compile(r"(k|ngram)(\d{1,2})")
_KNOWN = "plain, auto, model, ngram, k1 to k16 and ngram1 to ngram16"


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to draft: `draft_length` None is AUTO; `sources` None are all that are loaded."""

    name: str
    draft_length: int | None
    sources: frozenset[DraftSource] | None = None

    @property
    def drafts(self) -> bool:
        """Whether it may draft at all."""
        return self.draft_length != 0


@dataclass(frozen=True, slots=True)
class PeerAddress:
    """Another server: what to call it, and where it is."""

    name: str
    url: str


def parse_arms(names: str) -> tuple[Arm, ...]:
    """Read names set apart by commas; `plain`, which all others are compared with, comes first even if not named.

    Raises UserError for a name that is unknown or comes twice.
    """
    arms = [_arm(name.strip()) for name in names.split(",") if name.strip()]
    _refuse_twins([arm.name for arm in arms])
    others = [arm for arm in arms if arm.name != PLAIN]
    return (Arm(PLAIN, 0), *others)


def _arm(name: str) -> Arm:
    match name:
        case "plain":
            return Arm(name, 0)
        case "auto":
            return Arm(name, None)
        case "model":
            return Arm(name, None, frozenset({DraftSource.MODEL}))
        case "ngram":
            return Arm(name, None, frozenset({DraftSource.NGRAM}))
    fixed = _FIXED.fullmatch(name)
    if fixed is None or not 1 <= int(fixed[2]) <= _MAX_DRAFT_LENGTH:
        raise UserError(f"There is no arm {name!r}.", f"The arms are {_KNOWN}, set apart by commas.")
    source = DraftSource.MODEL if fixed[1] == "k" else DraftSource.NGRAM
    return Arm(name, int(fixed[2]), frozenset({source}))


def parse_peers(texts: Sequence[str], arms: Sequence[Arm]) -> tuple[PeerAddress, ...]:
    """Read URL or NAME=URL. Without a name it is peer, peer2 and so on. Raises UserError for a name that is taken."""
    peers = []
    for number, text in enumerate(texts, 1):
        name, separator, url = text.partition("=")
        if not separator or "/" in name:  # an equals sign of the URL's own
            name, url = "peer" if number == 1 else f"peer{number}", text
        if not url.startswith(("http://", "https://")):
            raise UserError(f"{url!r} is not the address of a server.", "Write it as --peer NAME=http://HOST:PORT.")
        peers.append(PeerAddress(name, url))
    _refuse_twins([*(arm.name for arm in arms), *(peer.name for peer in peers)])
    return tuple(peers)


def _refuse_twins(names: Sequence[str]) -> None:
    twins = sorted({name for name in names if names.count(name) > 1})
    if twins:
        raise UserError(f"The arm {twins[0]!r} is named twice.", "Name each arm once.")


def require_sources(arms: Sequence[Arm], loaded: frozenset[DraftSource]) -> None:
    """Raise UserError for an arm whose source of drafts is not loaded."""
    for arm in arms:
        if arm.sources is not None and not arm.sources <= loaded:
            raise UserError(
                f"The arm {arm.name} drafts with a draft model, and none is loaded."
                if DraftSource.MODEL in arm.sources
                else f"The arm {arm.name} drafts from the text itself, which this pair cannot.",
                f"Name a draft model with --draft FILE, or leave {arm.name} out of --arms.",
            )
