"""A model with its cache on llama.cpp's low-level functions: the engine's LanguageModel. Checks every return value."""

import ctypes
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any, Self

import numpy as np

from draftlight.engine.model import CannotRollBack, FloatArray
from draftlight.errors import UserError
from draftlight.llama.devices import device_list
from draftlight.llama.library import default_threads, native, native_function, native_log
from draftlight.llama.pool import ThreadPool
from draftlight.llama.threads import ThreadWatch
from draftlight.llama.vocabulary import LlamaVocabulary
from draftlight.settings import KvType, PairSettings

MAX_BATCH = 512  # tokens in one forward pass
MAX_ROWS = 32  # rows of logits of one forward pass: a draft of 31; more aborts llama.cpp
MIN_CONTEXT = 64  # tokens; less holds no question and answer
DEFAULT_CONTEXT = 8192  # tokens, where nothing else is asked for
_FILE_CHECK_SECONDS = 1.0

Progress = Callable[[float], bool]


class ModelNotLoaded(UserError):
    """The file could not be made into a running model; `about_cache` says that only its cache was refused."""

    def __init__(self, sentence: str, remedy: str = "", *, about_cache: bool = False) -> None:
        """Keep the parts and what was at fault."""
        super().__init__(sentence, remedy)
        self.about_cache = about_cache


class LoadCancelled(Exception):
    """The progress callback asked to stop; nothing is loaded."""


class ContextFull(UserError):
    """The tokens do not fit into the model's context any more."""


class DecodeFailed(UserError):
    """llama.cpp could not evaluate the tokens; the cache is as it was before."""


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """How one file is loaded. See PairSettings for the meaning of 0."""

    n_ctx: int = 0
    n_threads: int = 0
    n_gpu_layers: int = 0
    kv_type: KvType = KvType.Q8_0
    use_extra_buffers: bool = True
    device: str = ""

    @classmethod
    def of_target(cls, settings: PairSettings) -> Self:
        """Take what a pair's settings say about its target model."""
        return cls(
            settings.n_ctx,
            settings.n_threads,
            settings.n_gpu_layers,
            settings.kv_type,
            settings.use_extra_buffers,
            settings.device,
        )

    @classmethod
    def of_draft(cls, settings: PairSettings) -> Self:
        """Take what a pair's settings say about its draft model."""
        return replace(
            cls.of_target(settings),
            n_gpu_layers=settings.draft_n_gpu_layers,
            kv_type=settings.draft_kv_type,
            device=settings.draft_device,
        )


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """What tells one state of a file from another without reading it."""

    inode: int
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, path: Path) -> Self:
        """Look at the file now. Raises OSError."""
        status = path.stat()
        return cls(status.st_ino, status.st_size, status.st_mtime_ns)


class LlamaModel:
    """A loaded GGUF file and the tokens its cache holds. Used by one thread at a time.

    Satisfies engine.model.LanguageModel; `vocabulary` satisfies Tokenizer and the chat prompt's ChatVocabulary.
    The file stays memory-mapped: replaced by renaming another over it, the loaded one lives on; written in place, it
    would change under the model. forward() looks about once a second and raises UserError when either has happened.

    Attributes:
        n_threads: how many the last pass used.
        decode_seconds: time spent inside llama_decode until its logits were there, summed over all calls.
        n_past: tokens in the cache.

    """

    def __init__(
        self, path: Path, options: ModelOptions, progress: Progress | None = None, watch: ThreadWatch | None = None
    ) -> None:
        """Load the file. `progress` is told the fraction done and answers whether to go on.

        `watch` is told what passes take and says how many threads they use, at most those of the options.
        Raises ModelNotLoaded, or LoadCancelled when `progress` answered False.
        """
        self.path = path
        self._lib = native()
        self._logits_of = native_function("llama_get_logits", ctypes.c_void_p, ctypes.c_void_p)
        self._model: object | None = None
        self._context: object | None = None
        self._shape = (0, 0)  # tokens and rows of the last pass
        self._pool: ThreadPool | None = None
        self._watch = watch
        self._batch: Any = None  # a ctypes structure
        self._damaged = False  # the cache could not be put back after a failed pass
        self._identity = _identity_of_readable(path)
        self._checked_at = time.monotonic()
        native_log.forget_errors()
        self._model = self._load_model(options, progress)
        try:
            self.vocabulary = LlamaVocabulary(self._model)
            self.n_ctx_train: int = self._lib.llama_model_n_ctx_train(self._model)
            self._n_ctx = min(options.n_ctx or DEFAULT_CONTEXT, self.n_ctx_train or DEFAULT_CONTEXT)
            self.n_threads = options.n_threads or default_threads()
            self._pool = ThreadPool(self.n_threads) if self.n_threads > 1 else None
            self._make_context(options)
        except BaseException:
            self.close()
            raise
        finally:
            native_log.hand_over()
        self._n_vocab = self.vocabulary.n_tokens
        self.n_past = 0
        self.decode_seconds = 0.0
        self._prepare_batch()
        self._rows_address = 0
        self._rows: FloatArray = np.empty((0, self._n_vocab), dtype=np.float32)

    def _load_model(self, options: ModelOptions, progress: Progress | None) -> object:
        lib = self._lib
        params = lib.llama_model_default_params()
        params.n_gpu_layers = options.n_gpu_layers
        params.use_extra_bufts = options.use_extra_buffers
        devices = device_list(options.device)  # referenced until the load has returned
        params.devices = None if devices is None else ctypes.cast(devices, ctypes.c_void_p)
        stopped = False

        def report(fraction: float, _user_data: object) -> bool:
            nonlocal stopped
            stopped = progress is not None and not progress(fraction)
            return not stopped

        callback = lib.llama_progress_callback(report)  # referenced until the load has returned
        params.progress_callback = callback
        model: object | None = lib.llama_model_load_from_file(os.fsencode(self.path), params)
        native_log.hand_over()
        if stopped:
            if model:
                lib.llama_model_free(model)
            raise LoadCancelled
        if not model:
            reason = native_log.first_error()
            raise ModelNotLoaded(
                f"{self.path.name} could not be loaded{f': {reason}' if reason else ''}.",
                "The file may be incomplete or made for another program: download it again or choose another.",
            )
        return model

    def _make_context(self, options: ModelOptions) -> None:
        if self._n_ctx < MIN_CONTEXT:
            raise ModelNotLoaded(f"A context of {self._n_ctx} tokens is too short.", f"Choose at least {MIN_CONTEXT}.")
        lib = self._lib
        native_log.forget_errors()  # of the load, which went well
        context: object | None = lib.llama_init_from_model(self._model, self._context_params(options))
        if not context:
            reason = native_log.first_error()
            raise ModelNotLoaded(
                f"{self.path.name} is readable, but a context of {self._n_ctx:,} tokens with a {options.kv_type} cache "
                f"could not be made for it{f': {reason}' if reason else ''}.",
                "Choose a shorter context or the f16 cache.",
                about_cache=True,
            )
        if self._pool is not None:
            self._pool.serve(context)
        self._context = context
        self._memory = lib.llama_get_memory(context)

    def _context_params(self, options: ModelOptions) -> Any:  # noqa: ANN401 - a ctypes structure
        lib = self._lib
        params = lib.llama_context_default_params()
        params.n_ctx = self._n_ctx
        params.n_batch = params.n_ubatch = MAX_BATCH
        params.n_outputs_max = MAX_ROWS
        params.n_threads = params.n_threads_batch = self.n_threads
        kv_type, flash = _cache(lib, options)
        params.type_k = params.type_v = kv_type
        params.flash_attn_type = flash
        params.swa_full = True
        params.no_perf = True
        return params

    def _prepare_batch(self) -> None:
        """Make the one batch that every forward pass refills, and numpy views onto its arrays."""
        batch = self._batch = self._lib.llama_batch_init(MAX_BATCH, 0, 1)
        shape = (MAX_BATCH,)
        self._tokens = np.ctypeslib.as_array(batch.token, shape)
        self._positions = np.ctypeslib.as_array(batch.pos, shape)
        self._wanted = np.ctypeslib.as_array(batch.logits, shape)
        np.ctypeslib.as_array(batch.n_seq_id, shape)[:] = 1
        for index in range(MAX_BATCH):
            batch.seq_id[index][0] = 0
        self._all_positions = np.arange(self._n_ctx, dtype=np.int32)

    @property
    def n_ctx(self) -> int:
        """Tokens the cache can hold: as asked for, at most the training context."""
        return self._n_ctx

    @property
    def n_vocab(self) -> int:
        """Width of a row of logits."""
        return self._n_vocab

    @property
    def can_roll_back(self) -> bool:
        """Whether the architecture lets part of the cache be dropped: recurrent and hybrid models do not."""
        model = self._open_model()
        return not (self._lib.llama_model_is_recurrent(model) or self._lib.llama_model_is_hybrid(model))

    def forward(self, tokens: Sequence[int], rows: int) -> FloatArray:
        """Append `tokens` (1 to 512) to the cache; return the logits after each of the last `rows` of them (0 to 32).

        The array, (rows, n_vocab) float32, is a read-only view of llama.cpp's memory: it holds until the next call and
        must not be touched after close(). Raises ContextFull, DecodeFailed or UserError (file changed); the cache is
        then as it was before the call.
        """
        count = len(tokens)
        self._check_call(count, rows)
        self._tokens[:count] = tokens
        self._positions[:count] = self._all_positions[self.n_past : self.n_past + count]
        if self._shape != (count, rows):
            self._shape = (count, rows)
            self._wanted[: count - rows] = 0
            self._wanted[count - rows : count] = 1
        self._batch.n_tokens = count
        native_log.forget_errors()
        started = time.perf_counter()
        if self._watch is not None:
            self.use_threads(self._watch.policy.begin(started))
        status = self._lib.llama_decode(self._context, self._batch)
        if status != 0:
            self._give_up(status)
        # Both wait for the results, which on a GPU come after llama_decode has returned.
        address = self._logits_of(self._context) if rows else self._lib.llama_synchronize(self._context)
        ended = time.perf_counter()
        self.decode_seconds += ended - started
        if self._watch is not None:
            self._watch.passed(ended, count, self.n_past, ended - started)
        self.n_past += count
        return self._view(address)[:rows] if rows else self._rows[:0]

    def use_threads(self, n_threads: int) -> None:
        """Compute with so many threads from now on, at most those it was loaded with."""
        if n_threads != self.n_threads:
            self.n_threads = n_threads
            self._lib.llama_set_n_threads(self._context, n_threads, n_threads)

    def _check_call(self, count: int, rows: int) -> None:
        if self._context is None:
            raise ValueError(f"{self.path.name} was closed")
        if not (0 < count <= MAX_BATCH and 0 <= rows <= min(count, MAX_ROWS)):
            raise ValueError(f"forward({count} tokens, {rows} rows): at most {MAX_BATCH} tokens and {MAX_ROWS} rows")
        if self._damaged:
            raise DecodeFailed(f"{self.path.name} could not be evaluated before.", "Load the model again.")
        if self.n_past + count > self._n_ctx:
            raise ContextFull(
                f"The context of {self.path.name} is full: it holds {self._n_ctx:,} tokens.",
                "Start a new conversation, or load the model with a longer context.",
            )
        now = time.monotonic()
        if now - self._checked_at > _FILE_CHECK_SECONDS:
            self._checked_at = now
            self.check_file()

    def _view(self, address: int) -> FloatArray:
        """Return llama.cpp's rows of logits as an array; made anew only when the buffer has moved."""
        if address != self._rows_address:
            memory = (ctypes.c_float * (MAX_ROWS * self._n_vocab)).from_address(address)
            self._rows = np.ctypeslib.as_array(memory).reshape(MAX_ROWS, self._n_vocab)
            self._rows.flags.writeable = False
            self._rows_address = address
        return self._rows

    def _give_up(self, status: int) -> None:
        """Put the cache back to what it was and raise the sentence for a status that llama_decode returned."""
        native_log.hand_over()
        self._damaged = not self._lib.llama_memory_seq_rm(self._memory, 0, self.n_past, -1)
        reason = {1: "no room in the cache", 2: "stopped from outside"}.get(status, native_log.first_error())
        raise DecodeFailed(
            f"{self.path.name} could not be evaluated (llama.cpp's code {status}{f': {reason}' if reason else ''}).",
            "Load the model again; with a smaller context if memory is short.",
        )

    def rollback(self, n_past: int) -> None:
        """Drop every cached token from index `n_past` on. Raises CannotRollBack where the model cannot."""
        if self._context is None:
            raise ValueError(f"{self.path.name} was closed")
        if not 0 <= n_past <= self.n_past:
            raise ValueError(f"rollback to {n_past}: the cache holds {self.n_past} tokens")
        if n_past == self.n_past:
            return
        first = n_past or -1  # -1: the whole sequence, which every kind of memory can drop
        if not self._lib.llama_memory_seq_rm(self._memory, 0, first, -1):
            raise CannotRollBack(
                f"{self.path.name} cannot take back tokens that it has read, so no draft can be tried on it.",
                "Use it without a draft model.",
            )
        self.n_past = n_past
        self._damaged = self._damaged and n_past > 0

    def check_file(self) -> None:
        """Raise UserError when the file was written or replaced since it was loaded. A removed file stays usable."""
        try:
            identity = FileIdentity.of(self.path)
        except OSError:
            return
        if identity != self._identity:
            raise UserError(f"{self.path.name} was changed on disk while it was loaded.", "Load it again.")

    def close(self) -> None:
        """Free the cache, then the weights. Calling it again does nothing; using the model afterwards raises."""
        if self._context is not None:
            self._lib.llama_free(self._context)
            self._context = None
        if self._pool is not None:
            self._pool.close()
            self._pool = None
        if self._batch is not None:
            self._lib.llama_batch_free(self._batch)
            self._batch = None
        if self._model is not None:
            self._lib.llama_model_free(self._model)
            self._model = None

    def _open_model(self) -> object:
        if self._model is None:
            raise ValueError(f"{self.path.name} was closed")
        return self._model

    def __enter__(self) -> Self:
        """Return the model; leaving the block closes it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the model."""
        self.close()


def _cache(lib: ModuleType, options: ModelOptions) -> tuple[int, int]:
    """Return the cache's ggml type, and whether flash attention is used.

    A quantised cache needs it. On a processor the others are faster without it, by far at a thousand tokens and more.
    """
    types = {KvType.F16: lib.GGML_TYPE_F16, KvType.F32: lib.GGML_TYPE_F32}
    kv_type: int = types.get(options.kv_type, lib.GGML_TYPE_Q8_0)
    flash = kv_type == lib.GGML_TYPE_Q8_0 or options.n_gpu_layers != 0
    return kv_type, lib.LLAMA_FLASH_ATTN_TYPE_ENABLED if flash else lib.LLAMA_FLASH_ATTN_TYPE_DISABLED


def _identity_of_readable(path: Path) -> FileIdentity:
    """Return the identity of a file that can be opened; otherwise raise ModelNotLoaded saying what it is instead."""
    try:
        if path.is_dir():
            raise ModelNotLoaded(f"{path} is a folder, not a model file.", "Choose a file that ends in .gguf.")
        with path.open("rb"):
            return FileIdentity.of(path)
    except FileNotFoundError:
        raise ModelNotLoaded(f"There is no file {path}.", "Choose another model file.") from None
    except OSError as error:
        raise ModelNotLoaded(
            f"{path} cannot be read: {error.strerror or error}.", "Check the file's permissions."
        ) from error
