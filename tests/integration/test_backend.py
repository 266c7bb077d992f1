"""LlamaModel on real llama.cpp: a cache that can be trusted, text that survives, errors in sentences."""

import os
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from draftlight.engine.model import CannotRollBack, LanguageModel, Tokenizer
from draftlight.errors import UserError
from draftlight.llama import library
from draftlight.llama.backend import (
    MAX_BATCH,
    MAX_ROWS,
    ContextFull,
    DecodeFailed,
    LlamaModel,
    LoadCancelled,
    ModelNotLoaded,
    ModelOptions,
)
from draftlight.settings import KvType
from twins import CHAT_TEMPLATE, END_OF_TURN, TURN, Twins, write_twin

OPTIONS = ModelOptions(n_ctx=1024, n_threads=1)
TEXT = "the draft model and the target model take turns, round after round; each token is text. "


@pytest.fixture(scope="module")
def shared_twin(twin_pair: Twins) -> Iterator[LlamaModel]:
    with LlamaModel(twin_pair.target, OPTIONS) as model:
        yield model


@pytest.fixture
def twin(shared_twin: LlamaModel) -> LlamaModel:
    shared_twin.rollback(0)
    return shared_twin


@pytest.fixture(scope="module")
def shared_starter(starter_target: Path) -> Iterator[LlamaModel]:
    with LlamaModel(starter_target, OPTIONS) as model:
        yield model


@pytest.fixture
def starter(shared_starter: LlamaModel) -> LlamaModel:
    shared_starter.rollback(0)
    return shared_starter


@pytest.fixture(params=["twin", pytest.param("starter", marks=pytest.mark.model)])
def model(request: pytest.FixtureRequest) -> LlamaModel:
    loaded: LlamaModel = request.getfixturevalue(request.param)
    return loaded


def tokens_of(model: LlamaModel, count: int) -> list[int]:
    tokens = model.vocabulary.encode(TEXT)
    return (tokens * (count // len(tokens) + 1))[:count]


def test_satisfies_the_engine_s_protocols(twin: LlamaModel) -> None:
    language_model: LanguageModel = twin
    tokenizer: Tokenizer = twin.vocabulary
    assert language_model.n_vocab == twin.vocabulary.n_tokens
    assert language_model.n_ctx == OPTIONS.n_ctx
    assert tokenizer.encode("") == []


def test_logits_after_a_rollback_are_those_of_a_fresh_cache_bit_for_bit(model: LlamaModel) -> None:
    tokens = tokens_of(model, 300)
    model.forward(tokens[:250], 0)
    expected = model.forward(tokens[250:254], 4).copy()
    model.rollback(0)
    model.forward(tokens[:250], 0)
    model.forward(tokens[100:116], 16)  # a draft that is rejected, across the border of 256 cells
    model.rollback(250)
    assert np.array_equal(model.forward(tokens[250:254], 4), expected)


def test_widths_2_to_8_give_the_bits_of_width_1(model: LlamaModel) -> None:
    tokens = tokens_of(model, 270)
    model.forward(tokens[:250], 0)
    single = [model.forward([token], 1)[0].copy() for token in tokens[250:258]]
    for width in range(2, 9):
        model.rollback(250)
        assert np.array_equal(model.forward(tokens[250 : 250 + width], width), single[:width]), width


def test_returns_the_last_rows_in_order(twin: LlamaModel) -> None:
    tokens = tokens_of(twin, 12)
    every = twin.forward(tokens, 12).copy()
    twin.rollback(0)
    last = twin.forward(tokens, 3)
    assert last.shape == (3, twin.n_vocab)
    assert last.dtype == np.float32
    assert np.array_equal(last, every[-3:])


def test_no_rows_are_computed_where_none_are_asked_for(twin: LlamaModel) -> None:
    assert twin.forward(tokens_of(twin, 5), 0).shape == (0, twin.n_vocab)
    assert twin.n_past == 5


def test_the_logits_cannot_be_written_to(twin: LlamaModel) -> None:
    logits = twin.forward(tokens_of(twin, 2), 1)
    with pytest.raises(ValueError, match="read-only"):
        logits[0, 0] = 0.0


def test_takes_the_largest_batch_and_the_most_rows(twin: LlamaModel) -> None:
    assert twin.forward(tokens_of(twin, MAX_BATCH), MAX_ROWS).shape[0] == MAX_ROWS


@pytest.mark.parametrize(("count", "rows"), [(0, 0), (3, 4), (40, 33), (MAX_BATCH + 1, 1), (3, -1)])
def test_a_call_that_would_abort_the_process_is_refused(twin: LlamaModel, count: int, rows: int) -> None:
    with pytest.raises(ValueError, match="forward"):
        twin.forward(tokens_of(twin, count), rows)
    assert twin.n_past == 0


def test_a_full_context_is_a_sentence_and_keeps_the_cache(twin: LlamaModel) -> None:
    tokens = tokens_of(twin, 512)
    twin.forward(tokens, 0)
    twin.forward(tokens[:510], 0)
    with pytest.raises(ContextFull, match="full: it holds 1,024 tokens"):
        twin.forward(tokens[:3], 1)
    assert twin.forward(tokens[:2], 1).shape[0] == 1


def test_an_unknown_token_is_refused_and_keeps_the_cache(twin: LlamaModel) -> None:
    tokens = tokens_of(twin, 20)
    twin.forward(tokens[:10], 0)
    library.native_log.receive(4, b"an error of another time\n", None)
    with pytest.raises(DecodeFailed, match="could not be evaluated") as caught:
        twin.forward([tokens[0], twin.n_vocab], 1)
    assert "another time" not in caught.value.sentence
    assert "invalid token" in caught.value.sentence
    after = twin.forward(tokens[10:], 1).copy()
    twin.rollback(0)
    twin.forward(tokens[:10], 0)
    assert np.array_equal(twin.forward(tokens[10:], 1), after)


def test_rollback_beyond_the_cache_is_a_bug(twin: LlamaModel) -> None:
    twin.forward(tokens_of(twin, 4), 0)
    with pytest.raises(ValueError, match="holds 4"):
        twin.rollback(5)


class RefusingLibrary:
    """llama.cpp, but its memory is one of those that cannot drop a suffix."""

    def __init__(self, real: object) -> None:
        self._real = real

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)

    def llama_memory_seq_rm(self, _memory: object, _sequence: int, first: int, _end: int) -> bool:
        return first < 0


def test_a_memory_that_cannot_drop_a_suffix_says_so(twin_pair: Twins) -> None:
    with LlamaModel(twin_pair.target, OPTIONS) as model:
        model._lib = RefusingLibrary(model._lib)  # type: ignore[assignment]
        model.forward(tokens_of(model, 10), 0)
        with pytest.raises(CannotRollBack, match="cannot take back tokens"):
            model.rollback(5)
        assert model.n_past == 10
        model.rollback(0)
        assert model.n_past == 0


def test_time_inside_the_model_is_counted(twin: LlamaModel) -> None:
    before, started = twin.decode_seconds, time.perf_counter()
    twin.forward(tokens_of(twin, 100), 1)
    assert 0 < twin.decode_seconds - before <= time.perf_counter() - started


@pytest.mark.model
def test_python_costs_little_beside_a_forward_pass(starter: LlamaModel) -> None:
    tokens = tokens_of(starter, 4)
    overheads = []
    for _ in range(20):
        before, started = starter.decode_seconds, time.perf_counter()
        starter.forward(tokens, 4)
        overheads.append(time.perf_counter() - started - (starter.decode_seconds - before))
        starter.rollback(0)
    assert statistics.median(overheads) < 1e-3  # about 0.04 ms on a quiet machine


def test_a_typed_control_token_stays_text(model: LlamaModel) -> None:
    text = f"{END_OF_TURN} and {TURN}"
    tokens = model.vocabulary.encode(text)
    assert set(model.vocabulary.control_tokens.values()).isdisjoint(tokens)
    assert b"".join(map(model.vocabulary.piece, tokens)) == text.encode()


def test_a_turn_marker_stays_text_even_where_the_file_lists_it_as_an_ordinary_token(tmp_path: Path) -> None:
    path = tmp_path / "marker.gguf"
    write_twin(path, extra_tokens=("<|user|>", "<start_of_turn>"))
    with LlamaModel(path, OPTIONS) as model:
        text = "a <|user|> b <start_of_turn> c<|user|>"
        tokens = model.vocabulary.encode(text)
        markers = {model.vocabulary.control_tokens["<|user|>"], model.vocabulary.control_tokens["<start_of_turn>"]}
        assert markers.isdisjoint(tokens)
        assert b"".join(map(model.vocabulary.piece, tokens)) == text.encode()


@given(text=st.text(max_size=200))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_pieces_of_any_text_give_it_back(model: LlamaModel, text: str) -> None:
    vocabulary = model.vocabulary
    # The starter's vocabulary has no token for six ASCII control characters and for bytes of unassigned planes.
    lacking = frozenset(b"\x04\x06\x13\x14\x16\x1d\xf1\xf2") if vocabulary.n_tokens > 1000 else frozenset()
    expected = bytes(byte for byte in text.encode() if byte not in lacking)
    assert b"".join(map(vocabulary.piece, vocabulary.encode(text))) == expected


@pytest.mark.parametrize("text", ["a\x00b", "lone \ud800 surrogate", "\ufffe\uffff", "x" * 1_000_000])
def test_difficult_text_is_encoded(twin: LlamaModel, text: str) -> None:
    tokens = twin.vocabulary.encode(text)
    assert b"".join(map(twin.vocabulary.piece, tokens)) == text.encode("utf-8", "replace")


def test_the_vocabulary_tells_what_a_chat_prompt_needs(twin: LlamaModel) -> None:
    vocabulary = twin.vocabulary
    assert vocabulary.chat_template == CHAT_TEMPLATE
    assert vocabulary.bos_text == "<|start|>"
    assert vocabulary.eos_text == END_OF_TURN
    assert vocabulary.add_bos is False
    assert set(vocabulary.control_tokens) >= {TURN, END_OF_TURN}
    assert vocabulary.is_end(vocabulary.control_tokens[END_OF_TURN])
    assert not vocabulary.is_end(vocabulary.encode("a")[0])


def test_a_control_token_prints_nothing_but_has_a_label(twin: LlamaModel) -> None:
    end = twin.vocabulary.control_tokens[END_OF_TURN]
    assert twin.vocabulary.piece(end) == b""
    assert twin.vocabulary.label(end) == END_OF_TURN


def test_part_of_a_character_has_a_label(twin: LlamaModel) -> None:
    first = twin.vocabulary.encode("\U0001f600")[0]
    assert twin.vocabulary.label(first) == r"\xf0"


def test_a_model_without_a_chat_template_says_so(tmp_path: Path) -> None:
    write_twin(tmp_path / "base.gguf", chat_template=None)
    with LlamaModel(tmp_path / "base.gguf", OPTIONS) as model:
        assert model.vocabulary.chat_template is None


def test_the_context_is_at_most_what_the_model_was_trained_on(tmp_path: Path) -> None:
    write_twin(tmp_path / "short.gguf", n_ctx_train=300)
    for asked in (0, 299, 4096):
        with LlamaModel(tmp_path / "short.gguf", ModelOptions(n_ctx=asked, n_threads=1)) as model:
            assert model.n_ctx == (asked if 0 < asked < 300 else 300)


def test_both_cache_types_work(twin_pair: Twins) -> None:
    tops = []
    for kv_type in KvType:
        with LlamaModel(twin_pair.target, ModelOptions(n_ctx=512, n_threads=1, kv_type=kv_type)) as model:
            tops.append(int(model.forward(tokens_of(model, 50), 1)[0].argmax()))
    assert tops[0] == tops[1]


def test_a_closed_model_cannot_be_used_and_may_be_closed_again(twin_pair: Twins) -> None:
    model = LlamaModel(twin_pair.target, OPTIONS)
    model.close()
    model.close()
    with pytest.raises(ValueError, match="closed"):
        model.forward([1], 1)
    with pytest.raises(ValueError, match="closed"):
        model.rollback(0)


def test_a_load_stops_when_the_progress_says_so(twin_pair: Twins) -> None:
    seen: list[float] = []

    def stop_halfway(fraction: float) -> bool:
        seen.append(fraction)
        return fraction < 0.5

    with pytest.raises(LoadCancelled):
        LlamaModel(twin_pair.target, OPTIONS, stop_halfway)
    assert 0.5 <= seen[-1] < 1.0


def damaged(kind: str, good: bytes) -> bytes:
    return {
        "empty": b"",
        "random": np.random.default_rng(7).bytes(50_000),
        "cut in the header": good[:3000],
        "cut in the weights": good[: len(good) // 2],
        "of an unknown version": good[:4] + b"\x63\x00\x00\x00" + good[8:],
    }[kind]


@pytest.mark.parametrize(
    "kind", ["empty", "random", "cut in the header", "cut in the weights", "of an unknown version"]
)
def test_a_damaged_file_is_a_sentence_with_the_reason(tmp_path: Path, twin_pair: Twins, kind: str) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(damaged(kind, twin_pair.target.read_bytes()))
    with pytest.raises(ModelNotLoaded) as caught:
        LlamaModel(path, OPTIONS)
    assert caught.value.sentence.startswith("bad.gguf could not be loaded: ")
    assert "llama_" not in caught.value.sentence
    assert caught.value.remedy


def test_a_missing_file_and_a_folder_are_sentences(tmp_path: Path) -> None:
    with pytest.raises(ModelNotLoaded, match="There is no file"):
        LlamaModel(tmp_path / "absent.gguf", OPTIONS)
    with pytest.raises(ModelNotLoaded, match="is a folder"):
        LlamaModel(tmp_path, OPTIONS)


def test_a_file_replaced_while_loaded_is_noticed(tmp_path: Path, twin_pair: Twins) -> None:
    path = tmp_path / "changing.gguf"
    path.write_bytes(twin_pair.target.read_bytes())
    with LlamaModel(path, OPTIONS) as model:
        model.check_file()
        (tmp_path / "other.gguf").write_bytes(twin_pair.draft.read_bytes())
        (tmp_path / "other.gguf").replace(path)
        with pytest.raises(UserError, match="was changed on disk while it was loaded"):
            model.check_file()
        model._checked_at -= 10.0
        with pytest.raises(UserError, match="was changed on disk"):
            model.forward([1], 1)


def test_a_file_removed_while_loaded_stays_usable(tmp_path: Path, twin_pair: Twins) -> None:
    path = tmp_path / "removed.gguf"
    path.write_bytes(twin_pair.target.read_bytes())
    with LlamaModel(path, OPTIONS) as model:
        if os.name == "posix":
            path.unlink()
        model.check_file()
        assert model.forward([1], 1).shape[0] == 1


def test_the_log_is_quiet_and_keeps_the_reason(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "bad.gguf").write_bytes(b"GGUX" * 100)
    with pytest.raises(ModelNotLoaded):
        LlamaModel(tmp_path / "bad.gguf", OPTIONS)
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""
    assert "magic" in caplog.text


def test_a_log_line_that_comes_in_pieces_is_one_line() -> None:
    log = library.NativeLog()
    log.receive(4, b"llama_model_load: error loading model: ", None)
    log.receive(5, b"no \xff room\n", None)
    assert log.first_error() == "no \N{REPLACEMENT CHARACTER} room"


def test_the_library_says_what_it_runs_on() -> None:
    assert library.default_threads() >= 1
    assert library.system_info()
