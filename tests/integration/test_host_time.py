"""The engine's own time, all but llama.cpp's, must stay small beside the models'."""

import json
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from findings import note

BAR = 0.05
ENOUGH_RUNS, MOST_RUNS = 5, 30
PROMPT = "Write a short story about a fox who keeps a lighthouse."


def host_share(target: Path, draft: Path, temperature: str, seed: int) -> float:
    """Return what `generate --json` tells, run as a process of its own."""
    files = ["--target", str(target), "--draft", str(draft)]
    choices = ["--k", "3", "--temperature", temperature, "--seed", str(seed), "--max-tokens", "96", "--json"]
    done = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-m", "draftlight", "generate", PROMPT, *files, *choices],
        capture_output=True,
        encoding="utf-8",
        check=True,
        timeout=600,
    )
    finished = json.loads(done.stdout.splitlines()[-1])
    assert finished["event"] == "finished"
    share: float = finished["stats"]["host_share"]
    return share


@pytest.mark.model
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("temperature", ["0", "0.8"])
def test_host_time_is_under_5_percent_of_a_round_on_the_starter_pair(
    starter_target: Path, starter_draft: Path, temperature: str
) -> None:
    """The least of several runs: a neighbour on the machine can only add to it, and adds more than the bar itself."""
    shares: list[float] = []
    while len(shares) < ENOUGH_RUNS or (min(shares) >= BAR and len(shares) < MOST_RUNS):
        shares.append(host_share(starter_target, starter_draft, temperature, seed=len(shares)))
    note(
        f"host time at K = 3 on the starter pair, T = {temperature}: least {min(shares):.1%}, "
        f"median {statistics.median(shares):.1%} of a round in {len(shares)} runs"
    )
    assert min(shares) < BAR
