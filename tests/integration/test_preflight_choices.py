"""What preflight measures, and what it settles by that."""

from dataclasses import replace
from pathlib import Path

import pytest

from checked_pairs import FORBIDDEN, checked, command, settled
from draftlight.llama.trial import PROBE_COMMAND
from draftlight.settings import KvType, PairSettings
from twins import Twins


@pytest.fixture
def settings(twin_pair: Twins) -> PairSettings:
    return settled(twin_pair)


def test_measures_both_models_in_a_child(settings: PairSettings) -> None:
    found = checked(settings)
    assert found.settings == settings
    assert found.notices == ()
    assert found.report.draft is not None
    for model in (found.report.target, found.report.draft):
        assert model.n_ctx == 512
        assert model.costs.at(1, 100) > 0
        assert model.prefill_seconds(100) > 0
        assert model.weight_buffers
    assert found.report.n_threads == 1


def test_what_was_left_open_is_settled_by_measurement_and_kept(settings: PairSettings, tmp_path: Path) -> None:
    open_settings = replace(settings, n_threads=0, kv_type=KvType.AUTO, draft_kv_type=KvType.AUTO)
    found = checked(open_settings)
    assert found.report.draft is not None
    assert found.settings == replace(
        open_settings,
        n_threads=found.report.n_threads,
        kv_type=found.report.target.kv_type,
        draft_kv_type=found.report.draft.kv_type,
    )
    assert KvType.AUTO not in {found.settings.kv_type, found.settings.draft_kv_type}
    assert found.settings.n_threads in {trial.n_threads for trial in found.report.thread_trials}
    assert {trial.kv_type for trial in found.report.target.cache_trials} == {KvType.Q8_0, KvType.F16}
    assert checked(open_settings, command=command(tmp_path, FORBIDDEN)) == found


def test_a_target_keeps_its_cache_and_threads_whatever_drafts_for_it(settings: PairSettings, tmp_path: Path) -> None:
    pair = replace(settings, n_threads=0, kv_type=KvType.AUTO)
    first = checked(pair)
    alone = checked(replace(pair, draft=None), command=command(tmp_path, FORBIDDEN))
    assert alone.settings == replace(first.settings, draft=None, draft_kv_type=KvType.AUTO)
    assert (alone.report.target, alone.report.draft, alone.report.draft_trials) == (first.report.target, None, ())
    other = checked(replace(pair, draft=settings.target))
    assert (other.settings.n_threads, other.settings.kv_type) == (first.settings.n_threads, first.settings.kv_type)
    assert [trial.kv_type for trial in other.report.target.cache_trials] == [first.settings.kv_type]


def test_the_facts_for_the_engine_come_from_the_report(settings: PairSettings) -> None:
    found = checked(settings, command=PROBE_COMMAND)
    facts = found.report.facts
    assert found.report.draft is not None
    assert (facts.target, facts.draft) == (found.report.target.costs, found.report.draft.costs)
    assert facts.exact_widths | facts.near_exact >= {1, 2, 3, 4}  # with the 8-bit cache on every processor known
    assert 0.4 < sum(trial.accepted for trial in facts.trials) / len(facts.trials) < 1.0
    assert all(trial.margin >= 0 for trial in facts.trials)
