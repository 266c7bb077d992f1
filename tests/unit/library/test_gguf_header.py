"""The header reader: what it reads, and that every malformed file gives a sentence and nothing worse."""

import os
import pickle
import struct
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from draftlight.errors import UserError
from draftlight.library.gguf import BadModelFile, GgufHeader, read_header
from draftlight.library.kinds import ModelKind

Build = Callable[..., Any]
Write = Callable[..., Path]


def trouble(path: Path) -> BadModelFile:
    with pytest.raises(BadModelFile) as caught:
        read_header(path)
    assert isinstance(caught.value, UserError)
    assert caught.value.sentence.endswith(".")
    assert caught.value.remedy.endswith(".")
    return caught.value


def test_reads_what_the_file_says(write_model: Write) -> None:
    path = write_model(general__file_type=7, tokenizer__ggml__add_bos_token=True)
    header = read_header(path)
    assert (header.version, header.n_tensors, header.n_parameters, header.size) == (3, 2, 11, path.stat().st_size)
    assert (header.architecture, header.name, header.n_ctx_train, header.n_vocab) == ("llama", "Tiny", 128, 7)
    assert (header.tokenizer_model, header.chat_template, header.quantisation) == ("llama", "{{ messages }}", "Q8_0")
    assert (header.bos, header.eos, header.eot, header.add_bos) == (1, 2, None, True)
    assert header.split_count == 1
    assert header.tokens() == [b"<unk>", b"<s>", b"</s>", b"a", b"b", b"ab", b"\xc3"]
    assert header.token_types().tolist() == [2, 3, 3, 1, 1, 1, 6]


def test_version_2_and_values_per_layer_are_read(write_model: Write, build_gguf: Build, build_metadata: Build) -> None:
    entries = build_metadata(llama__attention__head_count_kv=(1, 2))
    header = read_header(write_model(content=build_gguf(entries, version=2)))
    assert (header.version, header.get_ints("llama.attention.head_count_kv")) == (2, (1, 2))


def test_long_arrays_are_read_through_a_growing_window(write_model: Write) -> None:
    tokens = [b"token %d" % number for number in range(60_000)]
    header = read_header(write_model(tokenizer__ggml__tokens=tokens, tokenizer__ggml__token_type=[1] * 60_000))
    assert header.tokens() == tokens
    assert header.eos == 2  # comes after the arrays
    assert np.array_equal(header.token_types(), np.ones(60_000))


def test_a_header_holds_no_vocabulary_and_travels_to_another_process(write_model: Write) -> None:
    header = read_header(write_model(tokenizer__ggml__tokens=[b"x" * 50] * 10_000))
    packed = pickle.dumps(header)
    assert len(packed) < 4_000
    assert pickle.loads(packed) == header  # noqa: S301 - packed two lines above


def test_a_file_changed_since_gives_a_sentence(write_model: Write) -> None:
    path = write_model()
    header = read_header(path)
    path.write_bytes(path.read_bytes() + b"more")
    with pytest.raises(BadModelFile, match="was changed after it was looked at"):
        header.tokens()


def test_no_file_stays_open(write_model: Write) -> None:
    path = write_model()
    read_header(path).tokens()
    assert str(path) not in [file.path for file in psutil.Process().open_files()]


def test_missing_folder_pipe_and_broken_link_are_told_apart(tmp_path: Path) -> None:
    assert "missing.gguf is not there" in trouble(tmp_path / "missing.gguf").sentence
    assert "is a folder" in trouble(tmp_path).sentence
    os.mkfifo(tmp_path / "pipe.gguf")
    assert "a pipe" in trouble(tmp_path / "pipe.gguf").sentence
    (tmp_path / "link.gguf").symlink_to("nowhere")
    assert "link to a file that is not there" in trouble(tmp_path / "link.gguf").sentence
    assert "cannot be opened" in trouble(tmp_path / "zero\0byte.gguf").sentence


@pytest.fixture
def stranger() -> Iterator[Path]:
    """A folder of our own, seen by somebody who may enter it but owns nothing in it."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        if os.geteuid() != 0:
            yield Path(folder)
            return
        os.seteuid(65_534)
        try:
            yield Path(folder)
        finally:
            os.seteuid(0)


def test_a_file_that_may_not_be_read_says_so(stranger: Path, build_gguf: Build) -> None:
    path = stranger / "locked.gguf"
    ours = os.geteuid()
    os.seteuid(os.getuid())
    path.write_bytes(build_gguf())
    path.chmod(0)
    os.seteuid(ours)
    assert "locked.gguf may not be read by you." in str(trouble(path))


def test_names_of_any_bytes_can_be_shown(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.gguf"))
    path.write_bytes(b"")
    assert trouble(path).sentence.encode().startswith("\ufffd.gguf is empty".encode())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty (0 bytes)"),
        (bytes(4096), "begins with zeros"),
        (b"\x93random bytes that are no model", "does not begin with the letters GGUF"),
        (b"<!DOCTYPE html><html>", "is a web page"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
        (b"tjgg\3\0\0\0", "GGML format"),
        (b"GGUF", "is incomplete or damaged: at byte 4"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version 1"),
        (b"GGUF" + struct.pack("<IQQ", 9, 0, 0), "version 9"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**62), "announces 4,611,686,018,427,387,904 entries"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**40, 0), "announces 1,099,511,627,776 tensors"),
    ],
)
def test_files_that_are_no_models_say_what_they_are(write_model: Write, content: bytes, words: str) -> None:
    assert words in trouble(write_model(content=content)).sentence


def entry(key: bytes, rest: bytes) -> bytes:
    return b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, len(key)) + key + rest


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (entry(b"", struct.pack("<II", 4, 1)), "at byte 24: an entry has no name"),
        (entry(b"\xff\xfe", struct.pack("<II", 4, 1)), "at byte 32: the name of an entry is not UTF-8"),
        (entry(b"k", struct.pack("<II", 99, 1)), "unknown type 99"),
        (entry(b"k", struct.pack("<IIQ", 9, 9, 1) + bytes(32)), "array of arrays"),
        (entry(b"k", struct.pack("<IIQ", 9, 8, 2**61)), "texts in 'k', more than the 0 bytes"),
        (entry(b"k", struct.pack("<IIQ", 9, 12, 2**61)), "numbers in 'k', more than"),
        (entry(b"k", struct.pack("<IIQQ", 9, 8, 1, 2**63)), "last element of 'k' runs past the end"),
        (entry(b"k", struct.pack("<IIQQQ", 9, 8, 2, 2**64 - 1, 1)), "element 1 of 'k' runs past the end"),
        (entry(b"k", struct.pack("<IQ", 8, 2**63)), "goes on for 9,223,372,036,854,775,808 bytes, but only 0"),
        (entry(b"k", struct.pack("<IQ", 8, 2) + b"\xc3("), "the entry 'k' is not UTF-8"),
        (entry(b"k" * 70_000, b""), "at most 65,535"),
    ],
)
def test_malformed_entries_name_the_place(write_model: Write, content: bytes, words: str) -> None:
    assert words in trouble(write_model(content=content)).sentence


def test_an_entry_there_twice_is_refused(write_model: Write) -> None:
    pair = struct.pack("<Q", 1) + b"k" + struct.pack("<II", 4, 1)
    content = b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + pair + pair
    assert trouble(write_model(content=content)).offset == 24 + len(pair)


@pytest.mark.parametrize("alignment", [0, 3, "32"])
def test_a_wrong_alignment_is_refused(write_model: Write, alignment: object) -> None:
    assert "not a power of two" in trouble(write_model(general__alignment=alignment)).sentence


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        ([("a", (4,), 0, 8)], "lies at 8 of the data instead of 0"),
        ([("a", (4,), 0, 0), ("b", (4,), 0, 64)], "lies at 64 of the data instead of 32"),
        ([("a", (4,), 0, 0), ("a", (4,), 0, 32)], "'a' is there twice"),
        ([("a", (1, 1, 1, 1, 1), 0, 0)], "5 dimensions"),
        ([("a", (2**32, 2**32), 0, 0)], "18,446,744,073,709,551,616 elements"),
        ([("a", (2**63, 0), 0, 0)], "would have 0 elements"),
        ([("a", (33,), 8, 0)], "whole Q8_0 blocks of 32"),
        ([("a" * 64, (4,), 0, 0)], "at most 63"),
    ],
)
def test_malformed_tensors_are_refused(write_model: Write, build_gguf: Build, tensors: list[Any], words: str) -> None:
    assert words in trouble(write_model(content=build_gguf(tensors=tensors))).sentence


def test_a_half_downloaded_file_says_how_much_is_there(write_model: Write, build_gguf: Build) -> None:
    whole = build_gguf()
    problem = trouble(write_model(content=whole[:-1]))
    assert problem.sentence == f"tiny.gguf is incomplete: {len(whole) - 1:,} of {len(whole):,} bytes."


def test_a_file_named_as_unfinished_is_called_unfinished(write_model: Write) -> None:
    assert trouble(write_model("tiny.gguf.part")).sentence == "tiny.gguf.part is an unfinished download."


def test_a_tensor_type_newer_than_the_table_is_kept_and_not_judged(write_model: Write, build_gguf: Build) -> None:
    header = read_header(write_model(content=build_gguf(tensors=[("a", (4,), 250, 0), ("b", (4,), 0, 64)], n_data=80)))
    assert header.unknown_tensor_types == (250,)
    assert header.n_parameters == 8


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({}, ModelKind.CHAT),
        ({"tokenizer__chat_template": None}, ModelKind.BASE),
        ({"general__architecture": "clip", "general__type": "mmproj"}, ModelKind.PROJECTOR),
        ({"general__type": "adapter"}, ModelKind.ADAPTER),
        ({"general__architecture": "nomic-bert"}, ModelKind.EMBEDDING),
        ({"llama__pooling_type": 3}, ModelKind.EMBEDDING),
        ({"general__architecture": "eagle3"}, ModelKind.DRAFT_HEAD),
        ({"general__architecture": "t5"}, ModelKind.OTHER),
        ({"general__type": "imatrix"}, ModelKind.OTHER),
        ({"general__architecture": None}, ModelKind.OTHER),
    ],
)
def test_kind_says_what_a_file_is_for(write_model: Write, changes: dict[str, Any], kind: ModelKind) -> None:
    header = read_header(write_model(**changes))
    assert header.kind is kind
    assert header.kind.writes_text is (kind in {ModelKind.CHAT, ModelKind.BASE})


def test_a_file_without_weights_is_a_vocabulary(write_model: Write, build_gguf: Build, build_metadata: Build) -> None:
    bare = write_model(content=build_gguf(tensors=[], n_data=0))
    assert read_header(bare).kind is ModelKind.VOCAB_ONLY
    shard = build_gguf(build_metadata(split__count=2, split__no=0, split__tensors__count=9), tensors=[], n_data=0)
    assert read_header(write_model(content=shard)).kind is ModelKind.CHAT


def read_everything(header: GgufHeader) -> None:
    """Ask for everything a window would ask for; a file that passed must answer without an exception."""
    for attribute in dir(GgufHeader):
        if not attribute.startswith("_") and not attribute.startswith("get_") and attribute != "array_bytes":
            answer = getattr(header, attribute)
            if callable(answer):
                answer()


quick = settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@quick
@given(data=st.data())
def test_no_mutation_gives_anything_but_a_bad_model_file(
    build_gguf: Build, tmp_path: Path, data: st.DataObject
) -> None:
    content = bytearray(build_gguf())
    interesting = st.sampled_from([0, 1, 7, 8, 9, 0x7F, 0x80, 0xFF]) | st.integers(0, 255)
    for place in data.draw(st.lists(st.integers(0, len(content) - 1), max_size=12)):
        content[place] = data.draw(interesting)
    del content[data.draw(st.just(len(content)) | st.integers(0, len(content))) :]
    path = tmp_path / "mutant.gguf"
    path.write_bytes(content)
    with suppress(BadModelFile):
        read_everything(read_header(path))


@quick
@given(rest=st.binary(max_size=200), n_tensors=st.integers(0, 3), n_entries=st.integers(0, 3))
@example(rest=b"", n_tensors=0, n_entries=0)
def test_no_noise_after_the_magic_gives_anything_else(
    tmp_path: Path, rest: bytes, n_tensors: int, n_entries: int
) -> None:
    path = tmp_path / "noise.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, n_tensors, n_entries) + rest)
    with suppress(BadModelFile):
        read_everything(read_header(path))
