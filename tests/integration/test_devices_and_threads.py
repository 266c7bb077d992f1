"""Where a model is computed and with how many threads, on real llama.cpp; a build without a GPU is enough."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest

from draftlight.engine.model import FloatArray
from draftlight.errors import UserError
from draftlight.llama import devices
from draftlight.llama.backend import LlamaModel, ModelOptions
from draftlight.llama.library import native_function
from draftlight.llama.report import DeviceKind
from draftlight.llama.threads import ThreadPolicy
from draftlight.settings import PairSettings
from program_process import wait_until
from twins import Twins

OPTIONS = ModelOptions(n_ctx=512, n_threads=2)
TOKENS = list(range(5, 45))
NO_GPU = pytest.mark.skipif("devices.can_offload()", reason="there is a GPU here")


def logits(path: Path, options: ModelOptions) -> FloatArray:
    with LlamaModel(path, options) as model:
        return model.forward(TOKENS, 8).copy()


def thread_ids() -> set[int]:
    return {thread.id for thread in psutil.Process().threads()}


def test_a_changing_thread_count_changes_no_bit(twin_pair: Twins) -> None:
    policy = ThreadPolicy(2)
    watch = policy.watch()
    with LlamaModel(twin_pair.target, OPTIONS, watch=watch) as watched, LlamaModel(twin_pair.target, OPTIONS) as other:
        used = []
        for index, token in enumerate(TOKENS):
            if index == 20:  # the watch learns that each pass takes a hundred times too long
                for _ in range(10):
                    policy.passed(index, 10.0, 0.1)
            assert np.array_equal(watched.forward([token], 1), other.forward([token], 1))
            used.append(watched.n_threads)
    assert set(used) == {1, 2}


def test_a_closed_model_leaves_no_thread_behind(twin_pair: Twins) -> None:
    logits(twin_pair.target, OPTIONS)
    before = thread_ids()  # not their number: some may still be ending, as a joined one may be for a moment
    with LlamaModel(twin_pair.target, replace(OPTIONS, n_threads=6)) as model:
        assert len(thread_ids() - before) == 5
        model.forward(TOKENS, 1)
    wait_until(lambda: thread_ids() <= before, "the end of the model's threads")


def test_the_processor_is_among_the_devices_with_its_memory() -> None:
    (processor,) = (device for device in devices.devices() if device.kind is DeviceKind.PROCESSOR)
    assert processor.name == "CPU"
    assert processor.description
    assert 0 < processor.memory_free <= processor.memory_total


def test_a_device_that_does_not_exist_is_refused_with_those_that_do(twin_pair: Twins) -> None:
    with pytest.raises(UserError, match="There is no device CUDA7") as refused:
        logits(twin_pair.target, replace(OPTIONS, device="CUDA7"))
    assert "CPU" in refused.value.remedy


def test_the_processor_can_be_chosen_by_its_name(twin_pair: Twins) -> None:
    assert np.array_equal(logits(twin_pair.target, replace(OPTIONS, device="CPU")), logits(twin_pair.target, OPTIONS))


@NO_GPU
def test_without_a_gpu_its_layers_change_nothing_and_a_sentence_says_so(twin_pair: Twins) -> None:
    settings = PairSettings(twin_pair.target, twin_pair.draft, draft_n_gpu_layers=99)
    assert devices.offload_notice(settings).startswith("There is no GPU that this build of llama.cpp can use")
    assert not devices.offload_notice(PairSettings(twin_pair.target, twin_pair.draft))
    assert not devices.offload_notice(replace(settings, draft=None))
    assert np.array_equal(
        logits(twin_pair.target, replace(OPTIONS, n_gpu_layers=99)), logits(twin_pair.target, OPTIONS)
    )


def test_an_unknown_function_of_llama_cpp_is_a_bug_that_says_its_name() -> None:
    with pytest.raises(AttributeError, match="llama_no_such_thing"):
        native_function("llama_no_such_thing", None)
