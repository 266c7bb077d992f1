"""The loop: draft, verify, commit, repeat. Plain decoding is the same loop with K = 0."""

from dataclasses import dataclass
from enum import StrEnum

from draftlight.engine.sampling import SamplingParams


class Mode(StrEnum):
    """How strictly the committed tokens must equal plain decoding's."""

    EXACT = "exact"  # only verify widths whose logits are bit-equal to plain decoding's
    FAST = "fast"  # any width: equal up to floating point, near-ties counted


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One answer to be generated. `draft_length` None is AUTO: the controller chooses K each round."""

    prompt: tuple[int, ...]
    sampling: SamplingParams
    seed: int
    draft_length: int | None = 3
    max_new_tokens: int = 512
    stop: tuple[str, ...] = ()
    mode: Mode = Mode.FAST
