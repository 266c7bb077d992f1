"""`probe` tells what was found out about a pair, to a program or to a reader."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from draftlight.cli import probe
from draftlight.cli.arguments import parse
from draftlight.cli.parts import Parts
from draftlight.engine.cancel import CancelToken
from draftlight.engine.costs import DraftTrial, StepCosts
from draftlight.engine.events import ModelLoading
from draftlight.forge.client import forge
from draftlight.history.store import HistoryStore
from draftlight.llama.report import CacheTrial, Exactness, ModelProbe, Preflight, ProbeReport, ThreadTrial
from draftlight.settings import KvType, PairSettings

COSTS = StepCosts((100, 2000), (1, 4), ((0.005, 0.009), (0.006, 0.012)))
CACHES = (
    CacheTrial(KvType.Q8_0, 12263, 0.0105, (1, 2, 3, 4)),
    CacheTrial(KvType.F32, 46103, 0.0101, (1,)),
    CacheTrial(KvType.F16, 23063, why_not="it would take too much"),
)
MODEL = ModelProbe(
    8192, 8192, 49152, 0.2, KvType.Q8_0, "exact, for 4% more time than f32", CACHES, COSTS, ("CPU_REPACK",), 240_000_000
)
PROBED = ProbeReport(
    target=MODEL,
    draft=MODEL,
    exactness=Exactness((1, 2, 3, 4), (8,), 0.001, 64, True, (100, 2000), (1, 2, 3, 4, 8)),
    n_threads=2,
    thread_trials=(ThreadTrial(1, 0.007, 0.02), ThreadTrial(2, 0.005, 0.009)),
    draft_trials=(DraftTrial(2.0, accepted=True), DraftTrial(0.1, accepted=False)),
    left_out=("d.gguf was not timed at width 16.",),
    seconds=14.0,
)


def told(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    """What `probe` writes of the pair that was found out about."""

    def find_out(asked: PairSettings, _cancel: CancelToken) -> Iterator[ModelLoading | Preflight]:
        yield ModelLoading("Timing the target")
        yield Preflight(asked, ("It crashed once.",), PROBED)

    parts = Parts(
        load=lambda _settings, _cancel: iter(()),
        open_store=lambda: HistoryStore.open(Path()),
        probe=find_out,
        forge=forge,
        library=lambda: "a library",
    )
    assert probe.run(parse(["probe", "--target", "t.gguf", "--draft", "d.gguf", *options]), parts) == 0
    return capsys.readouterr().out


def test_a_program_gets_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = told(capsys, "--json").splitlines()
    found = json.loads(line)
    assert found["settings"]["target"] == "t.gguf"
    assert found["settings"]["draft_kv_type"] == "auto"
    assert found["notices"] == ["It crashed once."]
    assert found["report"]["exactness"]["widths"] == [1, 2, 3, 4]
    assert found["report"]["target"]["costs"] == {
        "contexts": [100, 2000],
        "widths": [1, 4],
        "seconds": [[0.005, 0.009], [0.006, 0.012]],
    }


@pytest.mark.parametrize(
    "sentence",
    [
        "t.gguf with d.gguf",
        "It crashed once.",
        "d.gguf was not timed at width 16.",
        "target: q8_0, exact, for 4% more time than f32",
        "f32: 10.1 ms, 46.1 kB a token, exact at width 1",
        "f16: it would take too much",
        "passes over 1, 2, 3 and 4 tokens give the same bits as single tokens",
        "over 8 up to 0.001 in the logits alone",
        "accepted at 50% of 2 places",
        "2 (1: 7.0 and 20.0 ms for 1 and 4 tokens",
        "target 240 MB, draft model 240 MB",
        "      100      5.0     9.0",
        "    2,000      6.0    12.0",
    ],
)
def test_a_reader_gets_sentences_and_tables(capsys: pytest.CaptureFixture[str], sentence: str) -> None:
    assert sentence in told(capsys)
