"""The command line: what is understood, and what is refused with a sentence."""

from pathlib import Path

import pytest

from draftlight.cli.arguments import parse
from draftlight.errors import UserError


def test_every_option_of_generate_is_understood() -> None:
    line = (
        "generate Hi --target t.gguf --draft ngram --k 7 --temperature 0 --seed 5 --max-tokens 9 --mode exact --raw "
        "--top-k 1 --top-p 0.5 --min-p 0.1 --repeat-penalty 1.1 --stop A --stop B --system S "
        "--ctx 512 --threads 2 --kv f16 --json"
    )
    asked = parse(line.split())
    assert (asked.command, asked.prompt, asked.target, asked.draft) == ("generate", "Hi", Path("t.gguf"), "ngram")
    assert (asked.draft_length, asked.temperature, asked.seed, asked.max_tokens, asked.mode) == (7, 0.0, 5, 9, "exact")
    assert (asked.top_k, asked.top_p, asked.min_p, asked.repeat_penalty) == (1, 0.5, 0.1, 1.1)
    assert (asked.raw, asked.json, asked.stop, asked.system) == (True, True, ["A", "B"], "S")
    assert (asked.ctx, asked.threads, asked.kv) == (512, 2, "f16")


def test_k_auto_leaves_the_draft_length_to_the_controller() -> None:
    assert parse(["generate", "Hi", "--k", "auto"]).draft_length is None
    assert parse(["generate", "Hi"]).draft_length is None
    assert parse(["generate", "Hi", "--k", "3"]).draft_length == 3


def test_no_arguments_ask_for_the_window() -> None:
    assert parse([]).command is None
    assert parse([]).target is None


def test_a_model_file_alone_asks_for_the_window_with_that_target() -> None:
    asked = parse(["some folder/Model.GGUF"])
    assert (asked.command, asked.target) == (None, Path("some folder/Model.GGUF"))


@pytest.mark.parametrize(
    ("line", "named"),
    [
        (["generate"], "PROMPT"),
        (["generate", "Hi", "--k", "17"], "17"),
        (["generate", "Hi", "--k", "-1"], "-1"),
        (["generate", "Hi", "--k", "many"], "many"),
        (["generate", "Hi", "--temperature", "nan"], "nan"),
        (["generate", "Hi", "--temperature", "-0.1"], "-0.1"),
        (["generate", "Hi", "--top-p", "1.5"], "1.5"),
        (["generate", "Hi", "--max-tokens", "0"], "0"),
        (["generate", "Hi", "--seed", "-3"], "-3"),
        (["generate", "Hi", "--mode", "quick"], "quick"),
        (["generate", "Hi", "--temp", "1"], "--temp"),
        (["sing"], "sing"),
        (["--wat"], "--wat"),
    ],
)
def test_a_wrong_command_line_is_a_sentence_that_names_what_is_wrong(line: list[str], named: str) -> None:
    with pytest.raises(UserError) as raised:
        parse(line)
    assert named in raised.value.sentence
    assert raised.value.sentence.endswith(".")
    assert "--help" in raised.value.remedy
