"""What decides how a draft model turns out: its shape, the chats it learns from, how it is trained. Values only."""

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import tomli_w
from pydantic import TypeAdapter, ValidationError

from draftlight.errors import UserError


class Kind(StrEnum):
    """How a draft model is begun: with some of the target's layers, or with narrow new ones."""

    PRUNED = "pruned"
    NARROW = "narrow"


@dataclass(frozen=True, slots=True)
class Shape:
    """The draft model's size. `layers` are those of the target that a pruned one keeps, counted from 0.

    A narrow one has `n_layers` new layers of `width`, and the target's embedding projected onto its principal axes.
    """

    kind: Kind
    layers: tuple[int, ...] = ()
    n_layers: int = 0
    width: int = 0

    @property
    def label(self) -> str:
        """What to call it."""
        if self.kind is Kind.PRUNED:
            return f"layers {', '.join(map(str, self.layers))} of the target"
        return f"{self.n_layers} layers, {self.width} wide"


@dataclass(frozen=True, slots=True)
class ChatPlan:
    """The chats the target writes with itself. Lengths in tokens; `n_tokens` counts answers only.

    Of the answers `greedy_share` are the most likely ones, the others drawn at `temperature`. The `n_labels` likeliest
    tokens of the target's law are kept for each place: torch's law, or with `quantised_labels` that of the file as
    llama.cpp computes it, which takes about as long again.
    """

    n_tokens: int = 600_000
    longest_question: int = 96
    longest_answer: int = 320
    greedy_share: float = 0.5
    temperature: float = 0.8
    n_labels: int = 16
    n_together: int = 128
    languages: tuple[str, ...] = ("en",)
    quantised_labels: bool = False


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """How the draft model is trained. `n_tokens` are the answer tokens it sees, repeats included.

    Batches hold about `batch_tokens` tokens of whole chats. The loss is the cross-entropy to the target's law over its
    `n_labels` likeliest tokens, among those of the whole batch and `n_negatives` others; for the last `hard_share` of
    the training to its choice alone, since a draft is judged by the one token that it names. `matrix_rate` is Muon's,
    for the matrices of the layers, and 0 leaves them to AdamW like the rest; `learning_rate` is AdamW's, of which
    embeddings have a share of `embedding_rate`; `weight_decay` is that of the matrices. For the last `rounded_share`
    of the training the model computes with its matrices rounded as a Q4_0 file stores them, and so learns to bear it.
    """

    n_tokens: int = 3_000_000
    batch_tokens: int = 1200
    matrix_rate: float = 0.02
    learning_rate: float = 6e-3
    embedding_rate: float = 0.7
    n_negatives: int = 2048
    hard_share: float = 0.05
    warm_up: float = 0.02
    weight_decay: float = 0.1
    rounded_share: float = 0.3


@dataclass(frozen=True, slots=True)
class HeldOutPlan:
    """What the draft model is tested with: so many questions of the benchmark's, answered greedily by the target.

    `n_looks` is how often that is done during the training.
    """

    n_questions: int = 24
    n_tokens: int = 96
    n_looks: int = 12


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that decides: the same recipe and seed on the same kind of machine give the same draft model."""

    shape: Shape
    chats: ChatPlan = field(default_factory=ChatPlan)
    training: TrainingPlan = field(default_factory=TrainingPlan)
    held_out: HeldOutPlan = field(default_factory=HeldOutPlan)
    seed: int = 1


_RECIPE = TypeAdapter(Recipe)


def read_recipe(file: Path) -> Recipe:
    """Read a recipe in TOML. Raises UserError."""
    import tomllib  # noqa: PLC0415

    try:
        return _RECIPE.validate_python(tomllib.loads(file.read_text("utf-8")))
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}.", "Name another recipe.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, ValidationError) as error:
        raise UserError(f"{file} is no recipe: {error}.", "Compare it with models/starter-draft.toml.") from error


def as_toml(recipe: Recipe) -> str:
    """Return the recipe as read_recipe() takes it."""
    return tomli_w.dumps(_RECIPE.dump_python(recipe, mode="json", exclude_none=True))
