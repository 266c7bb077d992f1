"""Chats that the target writes with itself: questions, then its answers with what it thought at each place.

They are kept in shards of some hundred chats. A shard depends on its number and the recipe alone, and lies on disk
whole or not at all, so that a run that was killed goes on with the next missing one.
"""

import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedModel

from draftlight.chat.prompt import ChatMessage, ChatVocabulary, build_prompt
from draftlight.errors import UserError
from draftlight.forge.openers import Opener, draw
from draftlight.forge.recipe import ChatPlan
from draftlight.forge.writing import Manner, Written, write

_NO_LIMIT = 2**31
_QUESTION_TEMPERATURE = 1.0
_LEAST_QUESTION = 3  # tokens that the target must have added to an opener
_ENDINGS = (" apple", " zebra")  # what is common to prompts with either is the prompt up to the opener's end
_TRIES = 3  # at questions that are long enough


@dataclass(frozen=True, slots=True)
class Chats:
    """Chats laid end to end. `starts` has one entry more than there are chats: where each begins in `tokens`.

    Chat i is tokens[starts[i]:starts[i+1]]; its answer begins at `answers[i]`, counted within the chat. The labels,
    (answer tokens of all chats, n_labels), belong to the answers' tokens in their order.
    """

    tokens: NDArray[np.int32]
    starts: NDArray[np.int64]
    answers: NDArray[np.int64]
    label_ids: NDArray[np.int32]
    label_logprobs: NDArray[np.float16]

    @property
    def n_chats(self) -> int:
        """How many there are."""
        return len(self.answers)

    @property
    def n_answer_tokens(self) -> int:
        """Tokens of all answers."""
        return len(self.label_ids)


def joined(parts: Sequence[Chats]) -> Chats:
    """Return all chats of the parts, in their order."""
    lengths = np.concatenate([np.diff(part.starts) for part in parts])
    return Chats(
        np.concatenate([part.tokens for part in parts]),
        np.concatenate([[0], np.cumsum(lengths)]),
        np.concatenate([part.answers for part in parts]),
        np.concatenate([part.label_ids for part in parts]),
        np.concatenate([part.label_logprobs for part in parts]),
    )


class WritingVocabulary(ChatVocabulary, Protocol):
    """What a chat's vocabulary must tell besides."""

    end_tokens: frozenset[int]

    def piece(self, token: int) -> bytes:
        """UTF-8 bytes of a token; empty for control tokens."""


@dataclass(frozen=True, slots=True)
class ChatWriter:
    """Writes shards. `vocabulary` is the target's, as llama.cpp knows it: prompts are then those of real chats."""

    model: PreTrainedModel
    vocabulary: WritingVocabulary
    openers: Sequence[Opener]
    plan: ChatPlan
    seed: int

    def shard(self, number: int, go_on: Callable[[], bool]) -> Chats | None:
        """Write shard `number`; None as soon as `go_on` says no. Raises UserError for a target that asks nothing."""
        dice = random.Random(f"{self.seed} {number}")  # noqa: S311 - a recipe is to be repeated
        prompts: list[tuple[int, ...]] = []
        for _ in range(_TRIES):
            asked = self._questions(dice, go_on)
            if asked is None:
                return None
            prompts += asked
            if prompts:
                break
        else:
            raise UserError(
                "The target asks no questions: left to write what a person would, it ends at once.",
                "Choose a target that is trained for chats.",
            )
        answers = write(
            self.model,
            prompts,
            [0.0 if dice.random() < self.plan.greedy_share else self.plan.temperature for _ in prompts],
            Manner(self.plan.longest_answer, self.vocabulary.end_tokens, n_labels=self.plan.n_labels),
            dice.getrandbits(32),
            go_on,
        )
        return None if answers is None else _laid_end_to_end(prompts, answers)

    def _questions(self, dice: random.Random, go_on: Callable[[], bool]) -> list[tuple[int, ...]] | None:
        """Return prompts with questions that the target has written, those that are too short left out."""
        openers = draw(self.openers, self.plan.n_together, dice)
        asked = write(
            self.model,
            [self._beginning(opener.text) for opener in openers],
            [_QUESTION_TEMPERATURE] * len(openers),
            Manner(self.plan.longest_question, self.vocabulary.end_tokens, n_labels=1),
            dice.getrandbits(32),
            go_on,
        )
        if asked is None:
            return None
        return [
            self._prompt(opener.text + self._text(question))
            for opener, question in zip(openers, asked, strict=True)
            if len(question.tokens) > _LEAST_QUESTION
        ]

    def _prompt(self, question: str) -> tuple[int, ...]:
        return build_prompt(self.vocabulary, [ChatMessage("user", question)], _NO_LIMIT, 0).tokens

    def _beginning(self, opener: str) -> tuple[int, ...]:
        """Return the prompt of a question up to the end of the opener."""
        one, other = (self._prompt(opener + ending) for ending in _ENDINGS)
        n_common = next(i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
        return one[:n_common]

    def _text(self, written: Written) -> str:
        return b"".join(map(self.vocabulary.piece, written.tokens)).decode("utf-8", "ignore").rstrip()


def _laid_end_to_end(prompts: Sequence[Sequence[int]], answers: Sequence[Written]) -> Chats:
    tokens = [np.array([*prompt, *answer.tokens], np.int32) for prompt, answer in zip(prompts, answers, strict=True)]
    return Chats(
        np.concatenate(tokens),
        np.concatenate([[0], np.cumsum([len(each) for each in tokens])]),
        np.array([len(prompt) for prompt in prompts]),
        np.concatenate([answer.label_ids for answer in answers]),
        np.concatenate([answer.label_logprobs for answer in answers]),
    )


@dataclass(frozen=True, slots=True)
class Shards:
    """The shards on disk."""

    folder: Path

    def path(self, number: int) -> Path:
        """Where shard `number` lies, or belongs."""
        return self.folder / f"chats-{number:05d}.npz"

    def n_whole(self) -> int:
        """How many shards there are, up to the first that is missing."""
        number = 0
        while self.path(number).is_file():
            number += 1
        return number

    def keep(self, number: int, chats: Chats) -> None:
        """Write a shard in one stroke. Raises OSError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        part = self.path(number).with_suffix(".part")
        with part.open("wb") as file:
            np.savez(
                file,
                tokens=chats.tokens,
                starts=chats.starts,
                answers=chats.answers,
                label_ids=chats.label_ids,
                label_logprobs=chats.label_logprobs,
            )
            file.flush()
            os.fsync(file.fileno())
        part.replace(self.path(number))

    def read(self, number: int) -> Chats:
        """Read a shard."""
        with np.load(self.path(number)) as held:
            return Chats(**{name: held[name] for name in held.files})

    def all(self) -> Iterator[Chats]:
        """Yield the whole shards in their order."""
        for number in range(self.n_whole()):
            yield self.read(number)
