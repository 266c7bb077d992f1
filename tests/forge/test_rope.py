"""How positions are stretched is read from a file as llama.cpp would compute it, or the file is refused."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from draftlight.errors import UserError
from draftlight.forge.rope import read_parameters, rope_factors
from draftlight.library.gguf import GgufHeader, read_header

HEAD_DIM = 64
BASE = 500_000.0


def header_with(tmp_path: Path, **scaling: Any) -> GgufHeader:  # noqa: ANN401 - any metadata value
    path = tmp_path / "rope.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(8192)
    writer.add_rope_freq_base(BASE)
    for key, value in scaling.items():
        kind = gguf.GGUFValueType.STRING if isinstance(value, str) else gguf.GGUFValueType.FLOAT32
        writer.add_key_value(f"llama.rope.{key.replace('__', '.')}", value, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return read_header(path)


@pytest.mark.parametrize(
    ("factor", "high", "original"), [(8.0, 4.0, 8192), (32.0, 4.0, 8192), (8.0, 8.0, 4096)], ids=str
)
def test_llama_3_settings_are_found_again_from_what_frequencies_are_divided_by(
    factor: float, high: float, original: int, tmp_path: Path
) -> None:
    parameters = {
        "rope_type": "llama3",
        "rope_theta": BASE,
        "factor": factor,
        "low_freq_factor": 1.0,
        "high_freq_factor": high,
        "original_max_position_embeddings": original,
    }
    assert read_parameters(header_with(tmp_path), HEAD_DIM, rope_factors(parameters, HEAD_DIM)) == parameters


def test_borders_given_by_other_numbers_stretch_alike(tmp_path: Path) -> None:
    given = {
        "rope_type": "llama3",
        "rope_theta": BASE,
        "factor": 16.0,
        "low_freq_factor": 2.0,
        "high_freq_factor": 6.0,
        "original_max_position_embeddings": 8192,
    }
    factors = rope_factors(given, HEAD_DIM)
    found = read_parameters(header_with(tmp_path), HEAD_DIM, factors)
    assert found["original_max_position_embeddings"] == 4096
    assert rope_factors(found, HEAD_DIM) == pytest.approx(factors, rel=1e-3)


def test_factors_that_change_nothing_are_no_scaling(tmp_path: Path) -> None:
    ones = np.ones(HEAD_DIM // 2, dtype=np.float32)
    assert read_parameters(header_with(tmp_path), HEAD_DIM, ones) == {"rope_type": "default", "rope_theta": BASE}


@pytest.mark.parametrize("n_factors", [HEAD_DIM // 2, HEAD_DIM // 4])
def test_factors_that_follow_no_known_rule_are_refused(n_factors: int, tmp_path: Path) -> None:
    factors = np.linspace(1, 3, n_factors, dtype=np.float32) ** 2
    with pytest.raises(UserError, match="stretches its context"):
        read_parameters(header_with(tmp_path), HEAD_DIM, factors)


@pytest.mark.parametrize(
    "scaling",
    [
        {"scaling__type": "longrope", "scaling__factor": 4.0},
        {"scaling__type": "yarn", "scaling__factor": 4.0, "scaling__attn_factor": 0.7},
        {"scaling__type": "yarn", "scaling__factor": 4.0, "scaling__yarn_log_multiplier": 0.1},
    ],
    ids=str,
)
def test_scaling_that_transformers_computes_otherwise_is_refused(scaling: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="stretches its context"):
        read_parameters(header_with(tmp_path, **scaling), HEAD_DIM, None)


@pytest.mark.parametrize(
    "scaling",
    [{}, {"scaling__type": "none", "scaling__factor": 4.0}, {"scaling__type": "linear", "scaling__factor": 1.0}],
    ids=str,
)
def test_no_scaling_is_found_where_llama_cpp_applies_none(scaling: dict[str, Any], tmp_path: Path) -> None:
    parameters = read_parameters(header_with(tmp_path, **scaling), HEAD_DIM, None)
    assert parameters == {"rope_type": "default", "rope_theta": BASE}


@pytest.mark.parametrize("scaling", [{"scale_linear": 4.0}, {"scaling__factor": 4.0}], ids=str)
def test_a_factor_without_a_type_is_linear_as_in_llama_cpp(scaling: dict[str, Any], tmp_path: Path) -> None:
    parameters = read_parameters(header_with(tmp_path, **scaling), HEAD_DIM, None)
    assert parameters == {"rope_type": "linear", "rope_theta": BASE, "factor": 4.0}
