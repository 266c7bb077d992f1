"""What a forge run tells, as values, and as the lines of JSON in which its process tells them."""

from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import Field, TypeAdapter

from draftlight.forge.recipe import Recipe


class Stage(StrEnum):
    """The parts of a run, in their order."""

    LOADING = "loading"
    OUTLOOK = "outlook"
    CHATS = "chats"
    TRAINING = "training"
    MEASURING = "measuring"


@dataclass(frozen=True, slots=True)
class StageBegun:
    """A part of the run begins; `sentence` says what it does. A resumed run names finished parts again, briefly."""

    stage: Stage
    sentence: str
    event: Literal["stage"] = "stage"


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a draft model could bring on this machine, before it is made.

    `verify_costs[K]` is a verify of K drafted tokens and `draft_cost` a drafted token, both in plain steps of the
    target. `expected_acceptance` is what such a draft model usually reaches in the time given, per place.
    """

    shape: str
    verify_costs: tuple[float, ...]
    draft_cost: float
    expected_acceptance: float
    event: Literal["outlook"] = "outlook"

    def speed_up(self, acceptance: float) -> tuple[float, int]:
        """Return the best E/C over the draft lengths, K = 0 left out, and that K. `acceptance` is per place, 0 to 1.

        E = 1 + a + ... + a^K (Leviathan et al. 2023, equation 1), C = verify_costs[K] + K * draft_cost.
        """

        def gain(k: int) -> float:
            return sum(acceptance**i for i in range(k + 1)) / (self.verify_costs[k] + k * self.draft_cost)

        best = max(range(1, len(self.verify_costs)), key=gain)
        return gain(best), best

    @property
    def most(self) -> float:
        """The speed-up if every drafted token were accepted: no draft model of this shape can bring more."""
        return self.speed_up(1.0)[0]

    @property
    def expected(self) -> float:
        """The speed-up at the expected acceptance."""
        return self.speed_up(self.expected_acceptance)[0]


@dataclass(frozen=True, slots=True)
class ChatsWritten:
    """How far the target's chats are, in tokens of answers; `sample` is the beginning of one."""

    n_tokens: int
    n_wanted: int
    seconds_left: float
    sample: str = ""
    event: Literal["chats"] = "chats"


@dataclass(frozen=True, slots=True)
class Trained:
    """How far the training is: tokens seen, and the loss (cross-entropy to the target's choices, nats a token)."""

    n_tokens: int
    n_wanted: int
    loss: float
    seconds_left: float
    event: Literal["trained"] = "trained"


@dataclass(frozen=True, slots=True)
class AcceptanceMeasured:
    """On chats it has not seen: the share of the target's tokens that it foretells, and tokens a verify at K = 3.

    `loss` is that of the training by then, as `Trained` has it.
    """

    n_tokens: int
    acceptance: float
    block_efficiency: float
    loss: float
    event: Literal["acceptance"] = "acceptance"


@dataclass(frozen=True, slots=True)
class Card:
    """What the draft model is worth: what the result card shows and the file's metadata keep.

    `acceptance` per place on held-out chats; `block_efficiency[K]` committed tokens per verify at fixed K; `draft_cost`
    in plain steps; `expected` the best E/C by these, at draft length `best_k`; `measured` the speed-up of AUTO by
    `bench` with its interval, None where that was not run. `quantisation` is the file's, chosen by expected speed-up.
    """

    target: str
    shape: str
    quantisation: str
    n_bytes: int
    acceptance: float
    n_places: int
    block_efficiency: dict[int, float]
    draft_cost: float
    expected: float
    best_k: int
    logit_difference: float
    minutes: float
    n_chat_tokens: int
    n_trained_tokens: int
    recipe: Recipe
    measured: float | None = None
    measured_low: float | None = None
    measured_high: float | None = None

    def with_measured(self, value: float, low: float | None, high: float | None) -> Self:
        """Return the card with the speed-up that was measured."""
        return replace(self, measured=value, measured_low=low, measured_high=high)


@dataclass(frozen=True, slots=True)
class Forged:
    """The draft model is made; the run's last report."""

    path: Path
    card: Card
    event: Literal["forged"] = "forged"


@dataclass(frozen=True, slots=True)
class Tuned:
    """A draft model was tuned on the person's own chats; the run's last report.

    `before` and `after` are the acceptance per place on the newest `n_held_out` of the `n_answers` there are, none of
    which it has learned from; `earlier` is that of the one tuned earlier, if there is one. `path` is the tuned file,
    None where it was no better than both, and nothing was changed.
    """

    path: Path | None
    before: float
    after: float
    n_answers: int
    n_held_out: int
    earlier: float | None = None
    event: Literal["tuned"] = "tuned"


@dataclass(frozen=True, slots=True)
class Held:
    """The run waits, because it was told to pause; with `waiting` false it goes on again."""

    waiting: bool
    event: Literal["held"] = "held"


@dataclass(frozen=True, slots=True)
class Failed:
    """The run ended for a reason a person can do something about; what is done so far is kept where `resumable`."""

    sentence: str
    remedy: str
    resumable: bool
    event: Literal["failed"] = "failed"


Report: TypeAlias = StageBegun | Outlook | ChatsWritten | Trained | AcceptanceMeasured | Forged | Tuned | Held | Failed

_REPORT: TypeAdapter[Report] = TypeAdapter(Annotated[Report, Field(discriminator="event")])


def as_line(report: Report) -> str:
    """Return the report as one line of JSON, without the line's end."""
    return _REPORT.dump_json(report).decode()


def from_line(line: str) -> Report:
    """Return the report of one line. Raises pydantic.ValidationError for anything else."""
    return _REPORT.validate_json(line)
