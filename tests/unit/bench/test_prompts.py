"""Prompts: read from a file whose faults are named by line, spread over kinds, filled up to a length."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from draftlight.bench.prompts import BenchPrompt, Turn, read_prompts, spread, written
from draftlight.errors import UserError


def file_of(folder: Path, *lines: str) -> Path:
    file = folder / "prompts.jsonl"
    file.write_text("\n".join(lines), encoding="utf-8")
    return file


def entry(**changes: object) -> str:
    return json.dumps({"question_id": 7, "category": "prose", "turns": ["Why?", "And then?"], **changes})


def test_the_first_turn_of_each_entry_is_asked(tmp_path: Path) -> None:
    assert read_prompts(file_of(tmp_path, entry(), "", entry(question_id="b", category="code"))) == (
        BenchPrompt("7", "prose", "Why?"),
        BenchPrompt("b", "code", "Why?"),
    )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 3: this is not JSON."),
        ("[" * 100_000, "line 3: this is not JSON."),
        ("[]", "line 3: this has no question."),
        (entry(turns=[]), "line 3: this has no question."),
        (entry(turns=[" "]), "line 3: this has no question."),
        (entry(turns="Why?"), "line 3: this has no question."),
        (entry(turns=[5]), "line 3: this has no question."),
    ],
)
def test_a_faulty_line_is_named_by_its_number(tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        read_prompts(file_of(tmp_path, entry(), "", line))


@pytest.mark.parametrize("content", [b"", b"\n \n", b"\xff\xfe\x00"])
def test_a_file_without_prompts_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_bytes(content)
    with pytest.raises(UserError, match=r"prompts\.jsonl"):
        read_prompts(file)


def test_two_prompts_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="'7'"):
        read_prompts(file_of(tmp_path, entry(), entry()))


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none.jsonl", tmp_path):
        with pytest.raises(UserError, match=str(path)):
            read_prompts(path)


def test_a_limit_takes_from_every_kind_before_it_takes_a_second() -> None:
    prompts = [BenchPrompt(f"{kind}{n}", kind, "?") for kind in "abc" for n in range(3)]
    assert [prompt.id for prompt in spread(prompts, 4)] == ["a0", "b0", "c0", "a1"]
    assert sorted(spread(prompts, 99), key=lambda prompt: prompt.id) == prompts


def words(turns: Sequence[Turn]) -> tuple[int, ...]:
    """A token a word: its length."""
    return tuple(len(word) for turn in turns for word in turn.text.split())


def test_text_is_put_before_a_prompt_until_it_has_about_as_many_tokens_as_wanted() -> None:
    prompt = BenchPrompt("1", "chat", "what is the last word")
    fillers = [BenchPrompt("2", "chat", "one two three " * 20), BenchPrompt("3", "code", "four five six " * 40)]
    assert written(prompt, words).tokens == words([Turn("user", prompt.text)])
    for wanted in (80, 150, 1000):
        tokens = written(prompt, words, fillers, wanted).tokens
        assert wanted - 10 <= len(tokens) <= wanted + 10
        assert tokens[-5:] == words([Turn("user", prompt.text)])


def test_without_text_to_put_before_it_a_prompt_stays_as_it_is() -> None:
    assert len(written(BenchPrompt("1", "chat", "why not"), words, [], 500).tokens) == 2
