"""The devices that this build of llama.cpp can compute on: which there are, and how one is chosen by its name."""

import ctypes

from draftlight.errors import UserError
from draftlight.llama.library import native, native_function
from draftlight.llama.report import Device, DeviceKind
from draftlight.settings import PairSettings


def devices() -> tuple[Device, ...]:
    """Return what there is, as it is now. Raises UserError where llama.cpp itself cannot be loaded."""
    return tuple(_described(handle) for handle in _handles())


def can_offload() -> bool:
    """Say whether layers can be put on a GPU: the build knows one kind at least, and there is one."""
    return bool(native().llama_supports_gpu_offload())


def offload_notice(settings: PairSettings) -> str:
    """Return a sentence where GPU layers were asked for and there is no GPU; otherwise nothing."""
    asked = settings.n_gpu_layers or (settings.draft is not None and settings.draft_n_gpu_layers)
    if not asked or can_offload():
        return ""
    return "There is no GPU that this build of llama.cpp can use, so all layers are computed on the processor."


def device_list(name: str) -> "ctypes.Array[ctypes.c_void_p] | None":
    """Return the devices for `llama_model_params.devices`: one and a null, the null alone for the processor.

    None, which leaves the choice to llama.cpp, for no name. Keep the array until the model is loaded. Raises UserError,
    which lists the devices that there are.
    """
    if not name:
        return None
    for handle in _handles():
        device = _described(handle)
        if device.name == name and device.kind is DeviceKind.PROCESSOR:
            return (ctypes.c_void_p * 1)(None)
        if device.name == name and device.kind is not DeviceKind.ACCELERATOR:  # those only help the processor
            return (ctypes.c_void_p * 2)(handle, None)
    names = [device.name for device in devices() if device.kind is not DeviceKind.ACCELERATOR]
    raise UserError(f"There is no device {name} for a model.", f"Choose one of these: {', '.join(names)}.")


def _handles() -> list[int]:
    native()  # it registers them
    count = native_function("ggml_backend_dev_count", ctypes.c_size_t)()
    handle_at = native_function("ggml_backend_dev_get", ctypes.c_void_p, ctypes.c_size_t)
    return [handle_at(index) for index in range(count)]


def _described(handle: int) -> Device:
    name = native_function("ggml_backend_dev_name", ctypes.c_char_p, ctypes.c_void_p)(handle)
    description = native_function("ggml_backend_dev_description", ctypes.c_char_p, ctypes.c_void_p)(handle)
    number = native_function("ggml_backend_dev_type", ctypes.c_int, ctypes.c_void_p)(handle)
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    size = ctypes.POINTER(ctypes.c_size_t)
    memory = native_function("ggml_backend_dev_memory", None, ctypes.c_void_p, size, size)
    memory(handle, ctypes.byref(free), ctypes.byref(total))
    kind = list(DeviceKind)[number]
    return Device(name.decode(), description.decode("utf-8", "replace").strip(), kind, free.value, total.value)


def on_different_devices(settings: PairSettings) -> bool:
    """Whether target and draft model compute apart, so that one need not wait for the other."""
    if not settings.n_gpu_layers or not settings.draft_n_gpu_layers:
        return settings.n_gpu_layers != settings.draft_n_gpu_layers
    return settings.device != settings.draft_device
