"""What a draft model can learn from the person's own chats: what stood before each answer, and what the target chose.

Read from the chats as they lie on disk, each time anew and for reading only: nothing is copied anywhere, and a deleted
chat is forgotten. The choices are the tokens that were committed, by the answers' traces, so no text is guessed at.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from draftlight.chat.conversation import prompt_of
from draftlight.chat.prompt import PromptTooLong
from draftlight.chat.trace import load_event
from draftlight.engine.events import GenerationFinished
from draftlight.engine.model import LanguageModel
from draftlight.errors import UserError
from draftlight.forge.acceptance import HeldOut
from draftlight.forge.chats import Chats, WritingVocabulary
from draftlight.forge.labels import labelled_by
from draftlight.history.records import Message
from draftlight.history.store import HistoryStore

LONGEST = 1024  # tokens of a prompt and its answer; oldest turns are left out, then the answer's end
LEAST_ANSWERS = 20
_LONGEST_ANSWER = 640
_LEAST_TOKENS = 2
_NEWEST_SHARE = 0.15  # of the answers: to be tested with, and as many again to choose by
_LEAST_NEWEST, _MOST_NEWEST = 4, 40
_N_LABELS = 16


@dataclass(frozen=True, slots=True)
class Answer:
    """A prompt, and the tokens that the target committed to after it; an end token is the last, if it came."""

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Division:
    """Answers to learn from, those that choose when to stop, and the newest, which only judge. No prompt is in two."""

    learned: tuple[Answer, ...]
    choosing: tuple[HeldOut, ...]
    held_out: tuple[HeldOut, ...]


def answers_on_disk(
    store: HistoryStore, vocabulary: WritingVocabulary, target: str, n_tokens: int, go_on: Callable[[], bool]
) -> list[Answer] | None:
    """Return the answers of the target whose file is called `target`, oldest first; None as soon as `go_on` says no.

    Left out are answers without a readable trace, and those whose tokens do not spell their text by this vocabulary of
    `n_tokens` tokens, because another model had the file's name then.
    """
    found = []
    for message in store.answers_of(target):
        if not go_on():
            return None
        tokens = _committed(store, vocabulary, message, n_tokens)
        if len(tokens) >= _LEAST_TOKENS and message.parent_id is not None:
            system_prompt = store.conversation(message.conversation_id).system_prompt
            path = store.path_to(message.parent_id)
            found.append(Answer(_prompt(vocabulary, system_prompt, path, LONGEST - len(tokens)), tokens))
    return found


def _committed(store: HistoryStore, vocabulary: WritingVocabulary, message: Message, n_tokens: int) -> tuple[int, ...]:
    """Return the answer's tokens, at most so many as can be learned from; empty where they cannot be trusted."""
    try:
        line = store.last_round(message.id)
        event = load_event(line) if line else None
    except UserError:  # a trace of another version's
        return ()
    if not isinstance(event, GenerationFinished) or not all(0 <= token < n_tokens for token in event.tokens):
        return ()
    spelled = b"".join(map(vocabulary.piece, event.tokens)).decode("utf-8", "replace")
    return event.tokens[:_LONGEST_ANSWER] if spelled.startswith(event.text) else ()


def _prompt(vocabulary: WritingVocabulary, system_prompt: str, path: Sequence[Message], room: int) -> tuple[int, ...]:
    """Return what stood before the answer: without its oldest turns where they do not fit, or of the last its end."""
    try:
        return prompt_of(vocabulary, system_prompt, path, room, 0).tokens
    except PromptTooLong:
        return prompt_of(vocabulary, system_prompt, path[-1:], 2**31, 0).tokens[-room:]


def divided(answers: Sequence[Answer], target: str) -> Division:
    """Divide the answers by their age, those to the same prompt together. Raises UserError where there are too few."""
    by_prompt: dict[tuple[int, ...], list[Answer]] = {}
    for answer in answers:  # a prompt counts as new as its newest answer
        by_prompt[answer.prompt] = [*by_prompt.pop(answer.prompt, []), answer]
    groups = list(by_prompt.values())
    n_each = min(max(_LEAST_NEWEST, round(_NEWEST_SHARE * len(answers))), _MOST_NEWEST)
    held_out, choosing = _taken(groups, n_each), _taken(groups, n_each)
    learned = tuple(answer for group in groups for answer in group)
    n_more = max(LEAST_ANSWERS - len(answers), n_each - len(learned))
    if n_more > 0:
        raise UserError(
            f"There are {len(answers)} answers of {target} to learn from, and {n_more} more are needed.",
            "Chat with it some more first.",
        )
    return Division(learned, choosing, held_out)


def _taken(groups: list[list[Answer]], n_wanted: int) -> tuple[HeldOut, ...]:
    """Take the newest groups off until there are so many answers."""
    taken: list[HeldOut] = []
    while groups and len(taken) < n_wanted:
        taken[:0] = [HeldOut(answer.prompt, answer.tokens) for answer in groups.pop()]
    return tuple(taken)


def laws(answers: Sequence[Answer], target: LanguageModel, n_vocab: int, go_on: Callable[[], bool]) -> Iterator[Chats]:
    """Yield the answers, each with the target's law at each of its tokens; end as soon as `go_on` says no.

    The laws are llama.cpp's, of the very file that will be drafted for, over its first `n_vocab` tokens.
    """
    for answer in answers:
        text, n_prompt = (*answer.prompt, *answer.tokens), len(answer.prompt)
        n_places = len(answer.tokens)
        chat = Chats(
            np.array(text, np.int32),
            np.array([0, len(text)]),
            np.array([n_prompt]),
            np.empty((n_places, 0), np.int32),
            np.empty((n_places, 0), np.float16),
        )
        labelled = labelled_by(target, chat, _N_LABELS, go_on, n_vocab)
        if labelled is None:
            return
        yield labelled
