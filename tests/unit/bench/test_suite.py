"""The rules of our own prompts: eight kinds, evenly filled, in MT-bench's form, of a size that any context takes."""

import json
import re
from collections import Counter
from typing import Any

import pytest

from draftlight import paths

KINDS = {"chat", "prose", "code", "code_edit", "rewrite", "summary", "extraction", "reasoning"}
# No tokenizer here: a token is at most a word with its blanks, and seldom less than three letters, a digit or a sign.
WORD = re.compile(r"\S+")
PIECE = re.compile(r"[^\W\d_]{1,3}|\d|[^\w\s]|_|\n")
QUESTIONS: list[dict[str, Any]] = [
    json.loads(line) for line in paths.bench_suite().read_text(encoding="utf-8").splitlines()
]


def prompts(kind: str) -> list[str]:
    return [question["turns"][0] for question in QUESTIONS if question["category"] == kind]


def test_the_suite_has_six_prompts_of_each_of_eight_kinds() -> None:
    assert Counter(question["category"] for question in QUESTIONS) == dict.fromkeys(KINDS, 6)


def test_each_line_has_mt_bench_s_form_with_one_turn_and_a_number_of_its_own() -> None:
    assert {tuple(question) for question in QUESTIONS} == {("question_id", "category", "turns")}
    assert len({question["question_id"] for question in QUESTIONS}) == 48
    assert all(isinstance(question["question_id"], int) for question in QUESTIONS)
    assert len({question["turns"][0] for question in QUESTIONS}) == 48
    assert all(len(question["turns"]) == 1 and question["turns"][0].strip() for question in QUESTIONS)


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: str(question["question_id"]))
def test_a_prompt_has_between_30_and_600_tokens(question: dict[str, Any]) -> None:
    (prompt,) = question["turns"]
    assert len(WORD.findall(prompt)) >= 30
    assert len(PIECE.findall(prompt)) <= 600


@pytest.mark.parametrize("prompt", prompts("code_edit"), ids=range(6))
def test_a_code_edit_holds_the_15_to_40_lines_that_are_to_be_edited(prompt: str) -> None:
    (code,) = re.findall(r"^```\w+\n(.*?)^```$", prompt, re.DOTALL | re.MULTILINE)
    assert 15 <= len(code.splitlines()) <= 40


@pytest.mark.parametrize("kind", ["rewrite", "summary", "extraction"])
def test_what_is_to_be_worked_on_stands_below_the_instruction(kind: str) -> None:
    for prompt in prompts(kind):
        instruction, _, material = prompt.partition("\n\n")
        assert len(material) > len(instruction)
