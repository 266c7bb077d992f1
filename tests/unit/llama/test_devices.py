"""Which settings put target and draft model on devices of their own."""

from pathlib import Path

import pytest

from draftlight.llama.devices import on_different_devices
from draftlight.settings import PairSettings


@pytest.mark.parametrize(
    ("target", "draft", "apart"),
    [
        ((0, ""), (0, ""), False),
        ((99, ""), (0, ""), True),
        ((0, ""), (99, ""), True),
        ((99, "CUDA0"), (99, "CUDA0"), False),
        ((99, "CUDA0"), (99, "CUDA1"), True),
        ((99, ""), (20, ""), False),
        ((0, "CUDA0"), (0, "CUDA1"), False),
    ],
)
def test_a_draft_model_is_apart_where_another_device_computes_it(
    target: tuple[int, str], draft: tuple[int, str], *, apart: bool
) -> None:
    settings = PairSettings(
        Path("target.gguf"),
        Path("draft.gguf"),
        n_gpu_layers=target[0],
        device=target[1],
        draft_n_gpu_layers=draft[0],
        draft_device=draft[1],
    )
    assert on_different_devices(settings) is apart
