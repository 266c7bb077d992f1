"""How a model turns its heads by position: as GGUF files say it, and as transformers does.

The llama3 kind is not named in files: they hold only what each frequency is divided by, from which its settings are
found again here.
"""

import math
from collections.abc import Mapping
from typing import Any, TypeAlias

import gguf
import numpy as np
from numpy.typing import NDArray

from draftlight.errors import UserError
from draftlight.library.gguf import GgufHeader
from draftlight.library.header_file import shown_name

Parameters: TypeAlias = dict[str, Any]
"""transformers' `rope_parameters`: `rope_type`, `rope_theta` and what the type needs."""

FACTORS_TENSOR = "rope_freqs.weight"
DEFAULT_BASE = 10_000.0
_TOLERANCE = 1e-3
_USUAL_LLAMA3 = (4.0, 8192)  # high_freq_factor, original_max_position_embeddings
_UNKNOWN_SETTINGS = ("attn_factor", "yarn_log_multiplier", "yarn_ext_factor", "yarn_attn_factor", "alpha")


def read_number(header: GgufHeader, key: str, default: float) -> float:
    """Return a number of the file's own architecture; `default` where the file does not say."""
    value = header.metadata.get(f"{header.architecture}.{key}", default)
    return float(value) if isinstance(value, int | float) else default


def read_parameters(header: GgufHeader, head_dim: int, factors: NDArray[np.float32] | None) -> Parameters:
    """Return what the file says. `factors` is its tensor `rope_freqs.weight`, (head_dim / 2,), if it has one.

    Raises UserError for a kind of scaling that transformers would not compute as llama.cpp does.
    """
    base = read_number(header, "rope.freq_base", DEFAULT_BASE)
    kind = header.get_str(f"{header.architecture}.rope.scaling.type") or "linear"
    factor = read_number(header, "rope.scaling.factor", 0) or read_number(header, "rope.scale_linear", 0)
    odd = [name for name in _UNKNOWN_SETTINGS if f"{header.architecture}.rope.scaling.{name}" in header.metadata]
    scaled = kind != "none" and factor not in {0.0, 1.0}
    if odd or (scaled and (kind not in {"linear", "yarn"} or factors is not None)):
        raise _cannot(header, ", ".join(odd) or kind)
    if factors is not None:
        return _fit_llama3(header, base, head_dim, factors.astype(np.float64))
    if not scaled:
        return {"rope_type": "default", "rope_theta": base}
    parameters: Parameters = {"rope_type": kind, "rope_theta": base, "factor": factor}
    if kind == "yarn":
        parameters["original_max_position_embeddings"] = int(
            read_number(header, "rope.scaling.original_context_length", header.n_ctx_train)
        )
        parameters["beta_fast"] = read_number(header, "rope.scaling.yarn_beta_fast", 32.0)
        parameters["beta_slow"] = read_number(header, "rope.scaling.yarn_beta_slow", 1.0)
    return parameters


def _cannot(header: GgufHeader, kind: str) -> UserError:
    return UserError(
        f"{shown_name(header.path)} stretches its context in a way ({kind}) that drafts cannot be trained with yet.",
        "Choose a file of the same model without a stretched context.",
    )


def _wavelengths(base: float, head_dim: int) -> NDArray[np.float64]:
    return 2 * math.pi * base ** (np.arange(0, head_dim, 2) / head_dim)


def _fit_llama3(header: GgufHeader, base: float, head_dim: int, factors: NDArray[np.float64]) -> Parameters:
    """Find the settings that give these factors.

    Between the two borders 1 / factor rises in a straight line over 1 / wavelength. Only the borders matter, original
    length over either frequency factor, so the lower of these can be taken as 1.
    """
    if factors.shape != (head_dim // 2,):
        raise _cannot(header, f"{FACTORS_TENSOR} of another size")
    factor = float(factors.max())
    if factor <= 1.0:
        return {"rope_type": "default", "rope_theta": base}
    high, original = _USUAL_LLAMA3
    between = (factors > 1 + _TOLERANCE) & (factors < factor * (1 - _TOLERANCE))
    if between.sum() > 1:
        shares = (1 / factors[between] - 1 / factor) / (1 - 1 / factor)
        slope, intercept = np.polyfit(1 / _wavelengths(base, head_dim)[between], shares, 1)
        high = float(round(1 - 1 / intercept, 4))
        original = round(slope * (high - 1))
    parameters: Parameters = {
        "rope_type": "llama3",
        "rope_theta": base,
        "factor": factor,
        "low_freq_factor": 1.0,
        "high_freq_factor": high,
        "original_max_position_embeddings": original,
    }
    if not np.allclose(_llama3_factors(parameters, head_dim), factors, rtol=_TOLERANCE):
        raise _cannot(header, f"{FACTORS_TENSOR} of an unknown kind")
    return parameters


def _llama3_factors(parameters: Mapping[str, Any], head_dim: int) -> NDArray[np.float64]:
    low, high, factor = (parameters[f"{name}factor"] for name in ("low_freq_", "high_freq_", ""))
    turns = parameters["original_max_position_embeddings"] / _wavelengths(parameters["rope_theta"], head_dim)
    share = np.clip((turns - low) / (high - low), 0, 1)
    return np.asarray(1 / ((1 - share) / factor + share))


def rope_factors(parameters: Mapping[str, Any], head_dim: int) -> NDArray[np.float32] | None:
    """Return what each frequency is divided by, (head_dim / 2,), where a file has to hold it as a tensor."""
    if parameters["rope_type"] != "llama3":
        return None
    return _llama3_factors(parameters, head_dim).astype(np.float32)


def write_parameters(writer: gguf.GGUFWriter, parameters: Mapping[str, Any]) -> None:
    """Add to a file's metadata what read_parameters() reads."""
    writer.add_rope_freq_base(parameters["rope_theta"])
    kind = parameters["rope_type"]
    if kind in {"linear", "yarn"}:
        writer.add_rope_scaling_type(gguf.RopeScalingType(kind))
        writer.add_rope_scaling_factor(parameters["factor"])
    elif kind not in {"default", "llama3"}:
        raise ValueError(f"no GGUF form is known of the rope type {kind!r}")
    if kind == "yarn":
        writer.add_rope_scaling_orig_ctx_len(parameters["original_max_position_embeddings"])
        writer.add_rope_scaling_yarn_beta_fast(parameters["beta_fast"])
        writer.add_rope_scaling_yarn_beta_slow(parameters["beta_slow"])
