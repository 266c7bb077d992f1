"""The rules of settings.toml: never fatal, never lossy."""

import os
from pathlib import Path

import pytest
from pydantic import ValidationError

from draftlight.engine.decoding import Mode
from draftlight.engine.sampling import SamplingParams
from draftlight.errors import UserError
from draftlight.settings import (
    ColorScheme,
    Highlight,
    KvType,
    PairSettings,
    Palette,
    SamplingSettings,
    Settings,
    SettingsWriter,
    load_settings,
    save_settings,
)

ALL_CHANGED = Settings(
    sampling=SamplingSettings(temperature=0.0, top_k=7, top_p=0.5, min_p=0.0, repeat_penalty=1.1, penalty_last_n=0),
    draft_length="auto",
    mode=Mode.EXACT,
    max_new_tokens=12,
    system_prompt='Short answers.\n"Quotes" and\ttabs, 漢字, 👩‍👩‍👧\r\n',
    highlight=Highlight.ACCEPTED,
    palette=Palette.SHAPES,
    color_scheme=ColorScheme.DARK,
    pair=PairSettings(
        Path("/models/a b.gguf"),
        Path("/models/d.gguf"),
        n_ctx=2048,
        n_gpu_layers=12,
        draft_n_gpu_layers=99,
        device="CUDA0",
        draft_device="CPU",
        kv_type=KvType.F16,
    ),
    last_conversation=9,
)


def test_settings_survive_the_file(tmp_path: Path) -> None:
    file = tmp_path / "new" / "settings.toml"
    save_settings(ALL_CHANGED, file)
    loaded = load_settings(file)
    assert loaded.settings == ALL_CHANGED
    assert loaded.notices == ()


def test_no_file_means_the_defaults_without_a_word(tmp_path: Path) -> None:
    loaded = load_settings(tmp_path / "settings.toml")
    assert loaded.settings == Settings()
    assert loaded.notices == ()
    assert not list(tmp_path.iterdir())


def test_the_defaults_leave_draft_length_and_mode_to_the_engine_at_its_own_sampling() -> None:
    assert Settings().draft_length is None
    assert Settings().asked_mode is None
    assert Settings().sampling.params() == SamplingParams()


def test_the_mode_that_is_left_to_the_pair_is_the_engines_none() -> None:
    assert Settings(mode="auto").asked_mode is None
    assert Settings(mode=Mode.EXACT).asked_mode is Mode.EXACT


def test_keys_of_another_version_stay_when_the_file_is_rewritten(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    sampling, pair, race = "[sampling]\ntypical_p = 0.3\n", '[pair]\ntarget = "t.gguf"\nslot = 2\n', "[race]\nn = 4\n"
    file.write_text(f'since = 2031-01-01\npalette = "safe"\n{sampling}{pair}{race}')
    loaded = load_settings(file)
    assert loaded.notices == ()
    save_settings(loaded.settings.changed(palette="textbook"), file)
    text = file.read_text()
    for kept in ("since = 2031-01-01", "typical_p = 0.3", "slot = 2", "[race]\nn = 4", 'palette = "textbook"'):
        assert kept in text


def test_a_choice_that_was_taken_back_leaves_the_file(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    save_settings(ALL_CHANGED, file)
    plain = ALL_CHANGED.changed(pair=PairSettings(Path("t.gguf")), last_conversation=None)
    save_settings(plain, file)
    assert load_settings(file).settings == plain


def test_a_window_saves_only_what_it_has_changed_itself(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    save_settings(Settings().changed(learn_from_chats=True, system_prompt="Be brief."), file)
    opened = load_settings(file).settings
    writer = SettingsWriter(file, opened)
    save_settings(opened.changed(learn_from_chats=False), file)  # another process
    writer.save(opened.changed(palette="safe"))
    assert load_settings(file).settings == opened.changed(palette="safe", learn_from_chats=False)
    writer.save(opened)
    assert load_settings(file).settings == opened.changed(learn_from_chats=False)
    file.unlink()
    writer.save(opened)
    assert not file.exists(), "nothing has changed"


@pytest.mark.parametrize(
    "content",
    [b"\xff\xfe\x00garbage", b"temperature = ", b"a = " + b"[" * 5000, b"\x00" * 512, b"a = 1\na = 2\n"],
    ids=["bytes", "half", "nested", "zeros", "twice"],
)
def test_a_damaged_file_is_kept_aside_and_said(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "settings.toml"
    file.write_bytes(content)
    loaded = load_settings(file)
    assert loaded.settings == Settings()
    (kept,) = tmp_path.iterdir()
    assert kept.name.startswith("settings.toml.corrupt-")
    assert kept.read_bytes() == content
    assert kept.name in loaded.notices[0]


def test_a_file_damaged_since_it_was_read_is_kept_aside_when_saving(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_bytes(b"= = =")
    save_settings(ALL_CHANGED, file)
    assert load_settings(file).settings == ALL_CHANGED
    assert [path.read_bytes() for path in tmp_path.glob("*.corrupt-*")] == [b"= = ="]


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("draft_length = 17", "draft_length"),
        ('draft_length = "most"', "draft_length"),
        ("max_new_tokens = 0", "max_new_tokens"),
        ('palette = "neon"', "palette"),
        ("mode = 3", "mode"),
        ("system_prompt = []", "system_prompt"),
        ("sampling = 1", "sampling"),
        ("[sampling]\ntemperature = nan", "sampling.temperature"),
        ("[sampling]\ntop_p = 1.5", "sampling.top_p"),
        ("[pair]\nn_ctx = 4", "pair"),
        ('[pair]\ntarget = "t.gguf"\nn_ctx = -4', "pair"),
        ('[pair]\ntarget = "t.gguf"\nkv_type = "q9"', "pair.kv_type"),
    ],
)
def test_a_value_out_of_range_becomes_its_default_and_the_rest_stays(tmp_path: Path, line: str, key: str) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(f'color_scheme = "dark"\n{line}\n')
    loaded = load_settings(file)
    expected = Settings(color_scheme=ColorScheme.DARK)
    if key == "pair.kv_type":
        expected = expected.changed(pair=PairSettings(Path("t.gguf")))
    assert loaded.settings == expected
    assert len(loaded.notices) == 1
    assert loaded.notices[0].startswith(f"{key} = ")


def test_a_folder_in_the_files_place_is_said_and_not_touched(tmp_path: Path) -> None:
    (tmp_path / "settings.toml").mkdir()
    loaded = load_settings(tmp_path / "settings.toml")
    assert loaded.settings == Settings()
    assert "cannot be read" in loaded.notices[0]
    with pytest.raises(UserError, match="cannot be saved"):
        save_settings(Settings(), tmp_path / "settings.toml")
    assert [path.name for path in tmp_path.iterdir()] == ["settings.toml"]


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    save_settings(Settings(), file)
    before = file.read_bytes()
    (tmp_path / f"settings.toml.{os.getpid()}.new").symlink_to("/dev/full")
    with pytest.raises(UserError, match="No space left"):
        save_settings(ALL_CHANGED, file)
    assert file.read_bytes() == before
    assert list(tmp_path.iterdir()) == [file]


def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be made"):
        save_settings(Settings(), tmp_path / "file" / "settings.toml")


def test_a_path_that_is_no_text_is_a_sentence(tmp_path: Path) -> None:
    odd = Settings(pair=PairSettings(Path(os.fsdecode(b"/models/\xff.gguf"))))
    with pytest.raises(UserError, match="not proper text"):
        save_settings(odd, tmp_path / "settings.toml")


def test_a_link_to_the_settings_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "dotfiles").mkdir()
    link = tmp_path / "settings.toml"
    link.symlink_to(tmp_path / "dotfiles" / "mine.toml")
    save_settings(ALL_CHANGED, link)
    assert link.is_symlink()
    assert load_settings(link).settings == ALL_CHANGED


def test_a_change_is_checked_like_the_file() -> None:
    assert Settings().changed(draft_length=5).draft_length == 5
    with pytest.raises(ValidationError):
        Settings().changed(draft_length=99)
