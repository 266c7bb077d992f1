"""Threads that outlive a forward pass: llama.cpp by itself starts and ends them anew for each one.

On the starter target that costs a sixth of a pass. Between passes they sleep; those that are not asked for sleep on.
"""

import ctypes
from collections.abc import Callable
from typing import Any

from draftlight.llama.library import native_function

_MAX_THREADS = 512  # GGML_MAX_N_THREADS


class _Parameters(ctypes.Structure):
    """`ggml_threadpool_params` of ggml.h."""

    _fields_ = (
        ("cpumask", ctypes.c_bool * _MAX_THREADS),
        ("n_threads", ctypes.c_int),
        ("prio", ctypes.c_int),
        ("poll", ctypes.c_uint32),
        ("strict_cpu", ctypes.c_bool),
        ("paused", ctypes.c_bool),
    )


class ThreadPool:
    """The threads of one context. Close the context first."""

    def __init__(self, n_threads: int) -> None:
        """Start the threads, one fewer than `n_threads` (1 to 512): whoever runs a pass is one of them."""
        parameters = _Parameters()
        native_function("ggml_threadpool_params_init", None, ctypes.POINTER(_Parameters), ctypes.c_int)(
            ctypes.byref(parameters), n_threads
        )
        parameters.poll = 0  # waiting for the next pass must not keep a core busy
        make = _processor_function("ggml_threadpool_new", ctypes.c_void_p, ctypes.POINTER(_Parameters))
        self._free = _processor_function("ggml_threadpool_free", None, ctypes.c_void_p)
        self._pool: int | None = make(ctypes.byref(parameters))

    def serve(self, context: object) -> None:
        """Let the passes of a native `llama_context` run on these threads, until it is freed."""
        attach = native_function("llama_attach_threadpool", None, *[ctypes.c_void_p] * 3)
        attach(context, self._pool, self._pool)

    def close(self) -> None:
        """End the threads. Calling it again does nothing."""
        if self._pool is not None:
            self._free(self._pool)
            self._pool = None


def _processor_function(name: str, result: type | None, *arguments: Any) -> Callable[..., Any]:  # noqa: ANN401 - ctypes types
    """Return a function of ggml's processor backend, which may lie in a library of its own."""
    by_name = native_function("ggml_backend_reg_by_name", ctypes.c_void_p, ctypes.c_char_p)
    address_of = native_function("ggml_backend_reg_get_proc_address", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)
    address = address_of(by_name(b"CPU"), name.encode())
    return ctypes.CFUNCTYPE(result, *arguments)(address)
