"""Tuned draft models: found by what they were made from, tuned anew from the beginning, deleted without a trace."""

from pathlib import Path

import gguf
import pytest

from draftlight import paths
from draftlight.errors import UserError
from draftlight.forge.consent import require_consent
from draftlight.forge.lock import only_run
from draftlight.forge.request import ForgeRequest, request_for, unfinished
from draftlight.forge.tuned_files import reset, tuned, tuning_request, untuned, without
from draftlight.settings import PairSettings, Settings, load_settings, save_settings
from twins import Twins


def tune(asked: ForgeRequest) -> Path:
    """Leave the file that such a run would."""
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(asked.out, "llama")
    writer.add_string("draftlight.forge.tuned_from", str(asked.tune))
    writer.add_string("draftlight.forge.target", asked.target.name)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return asked.out


@pytest.fixture
def asked(twin_pair: Twins) -> ForgeRequest:
    return tuning_request(twin_pair.target, twin_pair.draft)


def test_a_tuned_draft_model_lies_among_the_person_s_models_and_its_run_apart(
    asked: ForgeRequest, twin_pair: Twins
) -> None:
    assert asked.out == paths.data_dir() / "models" / f"{twin_pair.draft.stem}-tuned.gguf"
    assert asked.tune == twin_pair.draft
    assert asked.folder.parent == request_for(twin_pair.target).folder.parent
    assert asked.folder != request_for(twin_pair.target).folder
    assert not unfinished(asked)


def test_tuning_again_begins_with_the_untuned_one_and_takes_its_place(asked: ForgeRequest, twin_pair: Twins) -> None:
    made = tune(asked)
    assert tuned(twin_pair.draft, twin_pair.target) == made
    assert untuned(made) == untuned(twin_pair.draft) == twin_pair.draft
    assert tuning_request(twin_pair.target, made) == asked


def test_another_draft_model_of_that_name_gets_a_file_of_its_own(
    asked: ForgeRequest, twin_pair: Twins, tmp_path: Path
) -> None:
    first = tune(asked)
    other = tmp_path / twin_pair.draft.name
    other.write_bytes(twin_pair.draft.read_bytes())
    second = tune(tuning_request(twin_pair.target, other))
    assert second.name == f"{other.stem}-tuned-2.gguf"
    assert (tuned(twin_pair.draft, twin_pair.target), tuned(other, twin_pair.target)) == (first, second)


def test_a_draft_model_tuned_for_one_target_is_left_alone_by_another_s(
    asked: ForgeRequest, twin_pair: Twins, tmp_path: Path
) -> None:
    first = tune(asked)
    larger = tmp_path / "larger.gguf"
    larger.write_bytes(twin_pair.target.read_bytes())
    assert tuned(twin_pair.draft, larger) is None
    assert reset(twin_pair.draft, larger) is None
    second = tune(tuning_request(larger, twin_pair.draft))
    assert second != first
    assert (tuned(twin_pair.draft, twin_pair.target), tuned(twin_pair.draft, larger)) == (first, second)
    assert reset(twin_pair.draft, larger) == second
    assert first.is_file()
    second = tune(tuning_request(larger, twin_pair.draft))
    assert reset(twin_pair.draft, twin_pair.target) == first
    assert tuned(twin_pair.draft, larger) == second, "though the first name is free again"
    assert tuning_request(larger, twin_pair.draft).out == second
    assert reset(twin_pair.draft, larger) == second


def test_a_reset_deletes_what_killed_tunings_have_left_and_leaves_one_at_work_alone(
    asked: ForgeRequest, twin_pair: Twins, tmp_path: Path
) -> None:
    other = tmp_path / "other.gguf"
    other.write_bytes(twin_pair.draft.read_bytes())
    at_work = tuning_request(twin_pair.target, other)
    left = asked.folder / "trial.gguf.tmp", asked.out.with_name(f"{asked.out.name}.part")
    busy = at_work.folder / "trial.gguf.tmp"
    for file in (*left, busy):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    with only_run(asked.folder):
        pass
    with only_run(at_work.folder):
        assert reset(twin_pair.draft, twin_pair.target) is None
        assert [file.exists() for file in (*left, busy)] == [False, True, True], "whose the last is cannot be told"
    assert reset(twin_pair.draft, twin_pair.target) is None
    assert not any(file.exists() for file in (*left, busy))


@pytest.mark.parametrize("by", ["its own name", "the untuned one's"])
def test_a_reset_deletes_the_tuned_file_and_the_pair_has_the_untuned_one_again(
    asked: ForgeRequest, twin_pair: Twins, by: str
) -> None:
    made = tune(asked)
    file = paths.settings_file()
    save_settings(Settings().changed(pair=PairSettings(twin_pair.target, made, n_ctx=512)), file)
    assert reset(made if by == "its own name" else twin_pair.draft, twin_pair.target) == made
    assert not made.exists()
    assert twin_pair.draft.is_file()
    assert load_settings(file).settings.pair == PairSettings(twin_pair.target, twin_pair.draft, n_ctx=512)
    assert reset(twin_pair.draft, twin_pair.target) is None


def test_another_pair_is_left_alone(asked: ForgeRequest, twin_pair: Twins) -> None:
    made = tune(asked)
    pair = PairSettings(twin_pair.target, twin_pair.target)
    assert without(made, pair) is pair


def test_a_missing_draft_model_is_a_sentence(twin_pair: Twins, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.gguf cannot be read"):
        tuning_request(twin_pair.target, tmp_path / "none.gguf")


def test_chats_are_not_learned_from_unless_that_was_allowed() -> None:
    assert not Settings().learn_from_chats
    with pytest.raises(UserError, match="once you have allowed it"):
        require_consent()
    save_settings(Settings().changed(learn_from_chats=True), paths.settings_file())
    require_consent()
