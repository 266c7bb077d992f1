"""`generate` and the other commands on the starter pair, as a script would call them."""

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from program_process import ONE_THREAD, Program, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.model]

QUESTION = "Name three colours of the rainbow."
NEAR_TIE = 0.05  # in the unit of scores: log p plus noise, logits at temperature 0


def answer(lines: list[dict[str, Any]]) -> dict[str, Any]:
    assert lines[-1]["event"] == "finished"
    return lines[-1]


def test_generate_writes_one_event_a_line_and_ends_with_finished(program: Program) -> None:
    lines = program.generate(QUESTION, "--k", "3", "--seed", "7", "--max-tokens", "40")
    finished = answer(lines)
    rounds = [line for line in lines if line["event"] == "round"]
    drafted = [token for each in rounds for token in each["drafted"]]
    committed = [token for each in rounds for token in each["committed"]]

    assert [line["event"] for line in lines].count("finished") == 1
    assert [token["id"] for token in committed] == finished["tokens"]
    assert "".join(token["text"] for token in committed) == finished["text"]
    assert {token["fate"] for token in drafted} >= {"accepted", "rejected"}
    assert all(token["q"] is not None for token in drafted)
    assert all(token["p"] is not None for token in drafted if token["fate"] in {"accepted", "rejected"})

    stats = finished["stats"]
    assert stats["n_drafted"] == len(drafted) > 0
    assert stats["acceptance_rate"] == pytest.approx(stats["n_accepted"] / stats["n_drafted"])
    assert stats["block_efficiency"] > 1
    assert stats["tokens_per_second"] > 0
    assert (finished["settings"]["seed"], finished["settings"]["draft_length"]) == (7, 3)


@pytest.mark.parametrize("temperature", ["0", "0.8"])
def test_the_committed_tokens_equal_plain_decodings(program: Program, temperature: str) -> None:
    options = ["--temperature", temperature, "--seed", "1", "--max-tokens", "48", "--kv", "q8_0"]
    plain = program.generate(QUESTION, *options, "--k", "0")
    for draft in (["--k", "3"], ["--draft", "ngram", "--k", "7"]):
        drafted = program.generate(QUESTION, *options, *draft)
        fork = next(
            (
                place
                for place, (ours, theirs) in enumerate(
                    zip(answer(drafted)["tokens"], answer(plain)["tokens"], strict=False)
                )
                if ours != theirs
            ),
            None,
        )
        if fork is None:
            assert answer(drafted)["tokens"] == answer(plain)["tokens"]
            assert answer(drafted)["text"] == answer(plain)["text"]
        else:  # logits of another width may differ in their last bits, and then only a near-tie may fall otherwise
            chosen = [token for line in plain if line["event"] == "round" for token in [line["target_token"]]]
            assert chosen[fork]["margin"] < NEAR_TIE, f"forked at token {fork}"


def test_a_target_alone_runs_plain(program: Program, starter_target: Path) -> None:
    finished = answer(program.generate(QUESTION, "--target", starter_target, "--max-tokens", "8"))
    assert finished["stats"]["n_drafted"] == 0
    assert len(finished["tokens"]) == 8


def test_the_prompt_can_come_from_the_standard_input_raw(program: Program) -> None:
    lines = program.generate("-", "--raw", "--temperature", "0", "--max-tokens", "8", text="One, two, three, four,")
    assert "five" in answer(lines)["text"]


def test_without_json_the_output_is_the_answer_alone(program: Program) -> None:
    options = ["--k", "3", "--temperature", "0", "--max-tokens", "16"]
    done = program.run("generate", QUESTION, *ONE_THREAD, *options)
    assert done.returncode == 0
    assert done.stdout == answer(program.generate(QUESTION, *options))["text"] + "\n"
    assert re.search(r"16 tokens .* tok/s .* accepted \d+ of \d+", done.stderr)


def test_the_terminal_never_loads_qt(program: Program) -> None:
    done = program.run("generate", QUESTION, *ONE_THREAD, "--max-tokens", "2", PYTHONPROFILEIMPORTTIME="1")
    assert "llama_cpp" in done.stderr
    assert "PySide6" not in done.stderr


def test_without_a_display_that_answers_the_chat_opens_in_the_terminal(program: Program) -> None:
    chat = program.start(DISPLAY=":987654")
    wait_until(lambda: "no display" in program.output(chat), "the sentence about the display")
    chat.send_signal(signal.SIGINT)
    assert chat.wait(timeout=60) == 130
    assert "Traceback" not in program.output(chat)


def test_a_reader_who_leaves_early_is_no_error(program: Program) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    process = program.start("generate", QUESTION, *ONE_THREAD, "--max-tokens", "8", "--json", stdout=writing)
    os.close(writing)
    process.wait(timeout=60)
    assert "Traceback" not in program.output(process)
    assert "Exception" not in program.output(process)


def test_models_lists_the_starter_pair_as_a_pair(program: Program, starter_target: Path, starter_draft: Path) -> None:
    done = program.run("models", "--json")
    assert done.returncode == 0
    listed = json.loads(done.stdout)
    pairs = {(pair["target"], pair["draft"]): pair["ok"] for pair in listed["pairs"]}
    assert pairs[str(starter_target), str(starter_draft)] is True


def test_probe_says_that_the_starter_pair_loads(program: Program, starter_target: Path, starter_draft: Path) -> None:
    done = program.run("probe", "--target", starter_target, "--draft", starter_draft, *ONE_THREAD, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)


def test_the_version_is_told_without_loading_anything_heavy(program: Program) -> None:
    done = program.run("--version", PYTHONPROFILEIMPORTTIME="1")
    assert done.stdout.startswith("draftlight ")
    heavy = {"numpy", "pydantic", "llama_cpp", "PySide6", "sqlite3", "jinja2", "platformdirs", "logging.handlers"}
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert loaded & heavy == set()
