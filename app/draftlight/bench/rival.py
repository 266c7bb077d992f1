"""Another server as an arm: the same raw tokens and the same law, interleaved with ours, by its own reported times."""

import time
from collections.abc import Callable

from draftlight.bench.measurement import Answer
from draftlight.bench.peer import Peer
from draftlight.engine.cancel import CancelToken
from draftlight.engine.sampling import SamplingParams


class PeerArm:
    """A server whose answers are measured beside ours."""

    def __init__(
        self,
        name: str,
        peer: Peer,
        sampling: SamplingParams,
        *,
        ignore_eos: bool,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Ask `peer` with this law; `ignore_eos` keeps the end tokens out of it."""
        self._name = name
        self._peer = peer
        self._sampling = sampling
        self._ignore_eos = ignore_eos
        self._clock = clock

    @property
    def name(self) -> str:
        """The arm's name."""
        return self._name

    def answer(self, prompt: tuple[int, ...], seed: int, max_tokens: int, cancel: CancelToken) -> Answer | None:
        """Have it answer from an empty cache; None where it was cancelled. Raises UserError."""
        started = self._clock()
        told = self._peer.complete(prompt, self._sampling, seed, max_tokens, cancel, ignore_eos=self._ignore_eos)
        if told is None:
            return None
        return Answer(
            tokens=told.tokens,
            decode_seconds=told.decode_seconds,
            first_token_seconds=told.first_token_seconds,
            wall_seconds=self._clock() - started,
            n_drafted=told.n_drafted,
            n_accepted=told.n_accepted,
        )
