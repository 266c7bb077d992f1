"""What a generation reports: frozen values that cross threads, are stored, replayed and printed as they are.

The `event` field names each kind in JSON. A change of meaning raises TRACE_VERSION.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, NamedTuple, TypeAlias

from draftlight.engine.metrics import SpeculationStats
from draftlight.engine.model import Token

TRACE_VERSION = 1


class TokenFate(StrEnum):
    """What became of a token on the screen."""

    PENDING = "pending"  # drafted, not yet verified
    ACCEPTED = "accepted"  # drafted, and the target chose the same
    REJECTED = "rejected"  # drafted; the first that the target did not choose
    NOT_REACHED = "not_reached"  # drafted after a rejection; never judged
    CORRECTION = "correction"  # the target's own token in place of a rejected one
    BONUS = "bonus"  # the target's own token after a full acceptance
    PLAIN = "plain"  # the target's own token in a round without a draft


COMMITTED_FATES = frozenset({TokenFate.ACCEPTED, TokenFate.CORRECTION, TokenFate.BONUS, TokenFate.PLAIN})


class DraftSource(StrEnum):
    """Where a drafted token came from."""

    MODEL = "model"
    NGRAM = "ngram"


class StopReason(StrEnum):
    """Why a generation ended."""

    END_TOKEN = "end_token"  # noqa: S105 - a reason, not a password
    STOP_STRING = "stop_string"
    LENGTH = "length"
    CONTEXT_FULL = "context_full"
    CANCELLED = "cancelled"


class Alternative(NamedTuple):
    """One of a model's likeliest tokens at a position, with its probability there."""

    id: int
    text: str
    probability: float


@dataclass(frozen=True, slots=True)
class TokenReport:
    """All that is known of one token, drafted or chosen by the target.

    Probabilities are those of the sampling law at temperature > 0 and the model's own (temperature 1) at
    temperature 0, where the law is one-hot and says nothing. A score is log p + noise, the figure whose largest
    value wins, at temperature 0 the logit. None stands where nothing was computed: q for the target's own tokens,
    all of the target's figures for tokens that are pending or not reached.
    """

    id: int
    text: str
    fate: TokenFate
    source: DraftSource | None = None
    p: float | None = None
    q: float | None = None
    p_rank: int | None = None  # 0 is the likeliest
    q_rank: int | None = None
    score: float | None = None  # the target's score of this token
    choice: Token | None = None  # what the target chose here
    choice_score: float | None = None
    margin: float | None = None  # choice_score less the runner-up's: a near-tie is a small one
    draft_margin: float | None = None  # the same in the draft model's eyes
    target_top: tuple[Alternative, ...] = ()
    draft_top: tuple[Alternative, ...] = ()
    draft_ms: float | None = None
    matched: int = 0  # of a copied token: how many tokens before it recur where it was copied from


@dataclass(frozen=True, slots=True)
class PromptEvaluated:
    """The target has read `n_evaluated` of the prompt's `n_tokens`; `n_reused` of them came from its cache."""

    n_tokens: int
    n_evaluated: int
    n_reused: int
    seconds: float
    event: Literal["prompt"] = "prompt"


@dataclass(frozen=True, slots=True)
class TokenDrafted:
    """The draft proposed one more token in this round; it is pending."""

    round: int
    index: int  # 0-based place within the draft
    token: TokenReport
    event: Literal["drafted"] = "drafted"


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Why a draft was as long as it was: the controller's own figures, made before the verify.

    `expected` is E, the tokens this round should commit, the target's own included; `cost` is C, what the round should
    cost in plain steps; `rate` is rho, the tokens a plain step's time should bring at the best choice. A round pays
    where E exceeds rho C. `acceptance` are the predicted chances of each drafted token, each given those before it.
    """

    acceptance: tuple[float, ...]
    expected: float
    cost: float
    rate: float


@dataclass(frozen=True, slots=True)
class RoundVerified:
    """One round: a draft of `drafted` tokens (none in plain decoding) and one verify.

    `target_token` is the correction, the bonus or the plain token; None where an accepted end token, a stop string
    or the length limit ended the answer inside the draft. `text_length` is how many characters of the answer may be
    shown: less than all while its tail could still become a stop string. Of the drafted tokens the first `n_submitted`
    were verified: the controller may leave out a tail that is not worth its row, which then counts as not reached.
    """

    round: int
    position: int  # tokens committed before this round
    drafted: tuple[TokenReport, ...]
    target_token: TokenReport | None
    text_length: int
    draft_ms: float
    verify_ms: float
    host_ms: float
    no_draft_reason: str = ""  # why nothing was drafted, in words; empty where something was
    n_submitted: int = 0
    width: int = 0  # rows of the verify, padding included
    reasoning: Reasoning | None = None  # of AUTO only
    saved_ms: float = 0.0  # against plain steps for the same tokens, by their measured cost; 0 where it is unknown
    ahead_ms: float = 0.0  # the draft model ran during the verify, for the next round
    audit: bool | None = None  # EXACT: did the last row, evaluated again alone, have the same bits; None: not asked
    event: Literal["round"] = "round"

    @property
    def n_accepted(self) -> int:
        """Drafted tokens that were committed."""
        return sum(token.fate is TokenFate.ACCEPTED for token in self.drafted)

    @property
    def committed(self) -> tuple[TokenReport, ...]:
        """The tokens this round adds to the answer, in order."""
        accepted = self.drafted[: self.n_accepted]
        return accepted if self.target_token is None else (*accepted, self.target_token)


@dataclass(frozen=True, slots=True)
class GenerationFinished:
    """The end: every committed token id, the text (cut before a stop string), the reason and the figures."""

    reason: StopReason
    tokens: tuple[int, ...]
    text: str
    stats: SpeculationStats
    event: Literal["finished"] = "finished"


Event: TypeAlias = PromptEvaluated | TokenDrafted | RoundVerified | GenerationFinished


@dataclass(frozen=True, slots=True)
class ModelLoading:
    """A model is being made ready: what is being done, and how far (0..1; None where nobody knows)."""

    step: str
    fraction: float | None = None
    event: Literal["loading"] = "loading"
