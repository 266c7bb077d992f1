"""The target's chats: prompts as real chats have them, shards that depend on their number alone."""

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from draftlight import paths
from draftlight.chat.prompt import ChatMessage, build_prompt
from draftlight.errors import UserError
from draftlight.forge.chats import Chats, ChatWriter, Shards, joined
from draftlight.forge.openers import Opener, draw, read_openers
from draftlight.forge.recipe import ChatPlan
from draftlight.forge.writing import ATTENTION
from draftlight.llama.backend import LlamaModel, ModelOptions
from draftlight.llama.vocabulary import LlamaVocabulary
from small_torch import small_model
from twins import END_OF_TURN, write_twin

PLAN = ChatPlan(longest_question=8, longest_answer=12, n_together=6, n_labels=4)
OPENERS = (Opener("one", "the draft"), Opener("two", "and a token:\n\n"), Opener("two", "user"))


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaVocabulary]:
    path = tmp_path_factory.mktemp("twin") / "twin.gguf"
    write_twin(path)
    model = LlamaModel(path, ModelOptions(n_ctx=256, n_threads=1))
    yield model.vocabulary
    model.close()


def writer(vocabulary: LlamaVocabulary, seed: int = 1) -> ChatWriter:
    model = small_model("llama", attention=ATTENTION, vocab_size=vocabulary.n_tokens)
    return ChatWriter(model, vocabulary, OPENERS, PLAN, seed)


def shard(vocabulary: LlamaVocabulary, number: int, seed: int = 1) -> Chats:
    found = writer(vocabulary, seed).shard(number, lambda: True)
    assert found is not None
    return found


def chat(chats: Chats, number: int) -> tuple[list[int], list[int]]:
    tokens = chats.tokens[chats.starts[number] : chats.starts[number + 1]].tolist()
    return tokens[: chats.answers[number]], tokens[chats.answers[number] :]


def test_a_question_is_asked_as_a_real_chat_asks_it(vocabulary: LlamaVocabulary) -> None:
    chats = shard(vocabulary, 0)
    assert chats.n_chats > 0
    for number in range(chats.n_chats):
        prompt, _ = chat(chats, number)
        text = b"".join(map(vocabulary.piece, prompt)).decode("utf-8", "ignore")
        question = text.removeprefix("user\n").removesuffix("\nassistant\n")
        assert prompt == list(build_prompt(vocabulary, [ChatMessage("user", question)], 2**31, 0).tokens)


@pytest.mark.model
def test_every_opener_is_kept_whole_and_the_target_goes_on_right_behind_it(starter_target: Path) -> None:
    model = LlamaModel(starter_target, ModelOptions(n_ctx=256, n_threads=1))
    try:
        vocabulary = model.vocabulary
        writes = ChatWriter(small_model("llama"), vocabulary, (), PLAN, 1)
        header = b"".join(map(vocabulary.piece, writes._beginning("")))
        assert header.endswith(b"user\n")
        for opener in read_openers(paths.asset("forge/openers.toml"), ["en", "de", "fr", "es", "it", "pt"]):
            text = b"".join(map(vocabulary.piece, writes._beginning(opener.text)))
            assert text == header + opener.text.encode()
    finally:
        model.close()


def test_answers_have_labels_for_each_token_and_end_with_an_end_token_or_at_their_longest(
    vocabulary: LlamaVocabulary,
) -> None:
    chats = shard(vocabulary, 0)
    end = vocabulary.control_tokens[END_OF_TURN]
    lengths = []
    for number in range(chats.n_chats):
        _, answer = chat(chats, number)
        lengths.append(len(answer))
        assert len(answer) == PLAN.longest_answer or answer[-1] == end
        assert end not in answer[:-1]
    assert chats.n_answer_tokens == sum(lengths)
    assert chats.label_ids.shape == (sum(lengths), PLAN.n_labels)


def test_a_shard_depends_on_its_number_and_the_seed_alone(vocabulary: LlamaVocabulary) -> None:
    first, again = shard(vocabulary, 3), shard(vocabulary, 3)
    assert np.array_equal(first.tokens, again.tokens)
    assert np.array_equal(first.label_ids, again.label_ids)
    for other in (shard(vocabulary, 4), shard(vocabulary, 3, seed=2)):
        assert not np.array_equal(first.tokens, other.tokens)


def test_kept_shards_come_back_whole_and_a_half_one_does_not_count(vocabulary: LlamaVocabulary, tmp_path: Path) -> None:
    shards = Shards(tmp_path)
    written = [shard(vocabulary, number) for number in range(2)]
    for number, each in enumerate(written):
        shards.keep(number, each)
    shards.path(2).with_suffix(".part").write_bytes(b"cut short")
    assert shards.n_whole() == 2
    together = joined(list(shards.all()))
    assert together.n_chats == sum(each.n_chats for each in written)
    last = together.n_chats - 1
    assert chat(together, last) == chat(written[1], written[1].n_chats - 1)
    assert np.array_equal(together.label_logprobs[-3:], written[1].label_logprobs[-3:])


def test_every_kind_of_opener_has_its_share() -> None:
    many = [Opener("long", f"text {n}") for n in range(50)] + [Opener("short", "one")]
    drawn = draw(many, 4000, random.Random(1))  # noqa: S311 - a test is to be repeated
    kinds = [opener.kind for opener in drawn]
    assert abs(kinds.count("long") - kinds.count("short")) < 300
    assert 800 < kinds.count("free") < 1200


def test_there_are_openers_in_english_and_unknown_languages_are_named() -> None:
    file = paths.asset("forge/openers.toml")
    assert len(read_openers(file, ["en"])) > 100
    assert len(read_openers(file, ["en", "xx"])) == len(read_openers(file, ["en"]))
    with pytest.raises(UserError, match="no openers in xx"):
        read_openers(file, ["xx"])
