"""`bench` on real llama.cpp with the program's own loader: figures that hang together, plain's tokens everywhere."""

import json
from pathlib import Path

import pytest

from draftlight.app import load_pair
from draftlight.cli import commands
from draftlight.cli.arguments import parse
from draftlight.cli.parts import Parts
from draftlight.errors import UserError
from findings import note
from twins import Twins

NEAR_TIE = 1.0  # score units; see test_lossless
ARMS = ("plain", "k3", "ngram", "auto")


def no_store() -> None:
    raise AssertionError("a benchmark opens no chats")


@pytest.mark.parametrize("temperature", ["0", "0.8"])
def test_every_arm_says_what_plain_says_and_accounts_for_its_time(
    twin_pair: Twins, tmp_path: Path, capsys: pytest.CaptureFixture[str], temperature: str
) -> None:
    asked = (
        f"bench --target {twin_pair.target} --draft {twin_pair.draft} --threads 1 --ctx 1024 --context 300 --limit 3 "
        f"--max-tokens 24 --arms {','.join(ARMS)} --temperature {temperature} --json --report {tmp_path / 'report'}"
    )
    parts = Parts(load=load_pair, open_store=no_store, probe=no_store, forge=no_store, library=lambda: "")  # type: ignore[arg-type]
    assert commands.run(parse(asked.split()), parts) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert list(told["arms"]) == list(ARMS)
    for fork in told["forks"]:
        note(f"bench on twins: {fork['arm']} forked at token {fork['position']}, plain's lead {fork['margin']}")
        assert fork["margin"] < NEAR_TIE
    for name, arm in told["arms"].items():
        assert arm["n_answers"] == 3
        assert arm["ratio"] > 0
        assert abs(arm["round"]["outside_share"]) < 0.2, name
    assert told["arms"]["k3"]["drafting"]["tally"]["drafted_by"].keys() == {"model"}
    assert told["arms"]["ngram"]["drafting"]["tally"]["drafted_by"].keys() <= {"ngram"}
    assert not [doubt for doubt in told["doubts"] if "above the bound" in doubt and "own times" in doubt]
    assert (tmp_path / "report" / "report.html").is_file()


def test_a_draft_that_is_no_model_is_a_sentence(twin_pair: Twins, tmp_path: Path) -> None:
    file = tmp_path / "draft.gguf"
    file.write_bytes(b"nothing")
    parts = Parts(load=load_pair, open_store=no_store, probe=no_store, forge=no_store, library=lambda: "")  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"draft\.gguf"):
        commands.run(parse(["bench", "--target", str(twin_pair.target), "--draft", str(file)]), parts)
