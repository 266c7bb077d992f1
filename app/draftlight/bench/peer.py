"""Another program's llama-server: asked for the same raw tokens with the same law, and timed by its own clock.

Its clock starts and stops where ours does: the first token counts to the prompt, the others to decoding, and neither
holds the time on the wire. Field names are those of llama.cpp's tools/server (server-task.cpp, server-common.cpp).
"""

import json
import math
import select
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

from draftlight.engine.cancel import CancelToken
from draftlight.engine.sampling import SamplingParams
from draftlight.errors import UserError

_CONNECT_SECONDS = 10.0
_CANCEL_CHECK_SECONDS = 0.1
_N_SEEDS = 2**32 - 1  # the server takes the one above as "a fresh seed"
_STATUS_OK, _STATUS_NOT_FOUND, _STATUS_LOADING = 200, 404, 503
_NO_SERVER = "Start llama-server with this address, or correct --peer."
_OTHER_SERVER = "Name the address of llama.cpp's own llama-server, of 2026 or later."
_REMEDIES = {
    _STATUS_NOT_FOUND: _OTHER_SERVER,
    _STATUS_LOADING: "Wait until it has loaded its model, then start again.",
}


@dataclass(frozen=True, slots=True)
class PeerDescription:
    """What a server says of itself; None where it does not tell.

    `n_ctx` is the context of one of its `n_slots` slots; `speculative` whether it drafts; `model_bytes` its weights.
    """

    url: str
    model: str
    build: str | None
    n_ctx: int | None
    n_slots: int | None
    n_vocab: int | None
    model_bytes: int | None
    model_type: str | None
    speculative: bool | None


@dataclass(frozen=True, slots=True)
class PeerAnswer:
    """One answer by the server's own figures; an end token is its last token.

    Seconds: `first_token` for the prompt and the first token, `decode` for all tokens after the first.
    """

    tokens: tuple[int, ...]
    decode_seconds: float
    first_token_seconds: float
    n_drafted: int
    n_accepted: int


class Peer:
    """A llama-server at an address such as http://127.0.0.1:8080; a trailing /v1 is left out."""

    def __init__(self, url: str, answer_seconds: float = 900.0) -> None:
        """Take the address; nothing is asked yet. `answer_seconds` is the longest that an answer may take.

        Raises UserError for what is no address.
        """
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise UserError(f"{url!r} is not the address of a server.", "Write it as http://HOST:PORT.") from None
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise UserError(f"{url!r} is not the address of a server.", "Write it as http://HOST:PORT.")
        self.url = url
        self._answer_seconds = answer_seconds
        self._secure, self._host, self._port = parts.scheme == "https", parts.hostname, port
        self._path = parts.path.rstrip("/").removesuffix("/v1")

    def describe(self) -> PeerDescription:
        """Ask what the server runs. Raises UserError where none answers, or one that is no llama-server."""
        props = self._told("/props")
        models = self._told("/v1/models").get("data")
        meta = _table(models[0] if isinstance(models, list) and models else None, "meta")
        slots = self._told("/slots") if props.get("endpoint_slots") is True else None
        drafts = [_table(slot).get("speculative") for slot in slots] if isinstance(slots, list) else []
        return PeerDescription(
            url=self.url,
            model=str(props.get("model_path", "")),
            build=_text(props.get("build_info")),
            n_ctx=_count(_table(props, "default_generation_settings").get("n_ctx")),
            n_slots=_count(props.get("total_slots")),
            n_vocab=_count(meta.get("n_vocab")),
            model_bytes=_count(meta.get("size")),
            model_type=_text(meta.get("ftype")),
            speculative=True in drafts if drafts else None,
        )

    def complete(
        self,
        prompt: Sequence[int],
        sampling: SamplingParams,
        seed: int,
        max_tokens: int,
        cancel: CancelToken,
        *,
        ignore_eos: bool = False,
    ) -> PeerAnswer | None:
        """Have the server continue these tokens from an empty cache; None where it was cancelled.

        `ignore_eos` keeps end tokens out of the law. Raises UserError where the server refuses, fails or is too slow.
        """
        body = {
            "prompt": list(prompt),
            "n_predict": max_tokens,
            "seed": seed % _N_SEEDS,
            "ignore_eos": ignore_eos,
            "cache_prompt": False,
            "return_tokens": True,
            "stream": False,
            **_law(sampling),
        }
        told = self._ask("/completion", body, cancel)
        return None if told is None else self._answer(told)

    def _told(self, path: str) -> Any:  # noqa: ANN401 - JSON
        return self._ask(path, None, CancelToken())

    def _ask(self, path: str, body: Mapping[str, object] | None, cancel: CancelToken) -> Any:  # noqa: ANN401 - JSON
        """Return the server's answer, read from JSON; None where it was cancelled, which the server sees and stops."""
        kind = HTTPSConnection if self._secure else HTTPConnection
        connection = kind(self._host, self._port, timeout=_CONNECT_SECONDS)
        try:
            sent = None if body is None else json.dumps(body)
            headers = {"Content-Type": "application/json"}
            connection.request("GET" if sent is None else "POST", self._path + path, sent, headers)
            if not self._has_answered(connection, cancel):
                return None
            response = connection.getresponse()
            status, content = response.status, response.read()
        except TimeoutError:
            raise UserError(f"The server at {self.url} did not answer in time.", "See whether it is stuck.") from None
        except (OSError, HTTPException) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise UserError(f"No server answers at {self.url}: {reason}.", _NO_SERVER) from error
        finally:
            connection.close()
        return self._read(path, status, content)

    def _has_answered(self, connection: HTTPConnection, cancel: CancelToken) -> bool:
        """Wait until the answer begins; False where it was cancelled before. Raises TimeoutError.

        It comes in one piece, for streaming would cost the server time that we do not spend.
        """
        deadline = time.monotonic() + self._answer_seconds
        while not cancel.cancelled:
            if select.select([connection.sock], [], [], _CANCEL_CHECK_SECONDS)[0]:
                return True
            if time.monotonic() > deadline:
                raise TimeoutError
        return False

    def _read(self, path: str, status: int, content: bytes) -> Any:  # noqa: ANN401 - JSON
        """Take the answer apart. Raises UserError for a refusal, in the server's own words."""
        try:
            told = json.loads(content)
        except (ValueError, RecursionError):
            told = None
        if status != _STATUS_OK:
            reason = _text(_table(told, "error").get("message")) or f"status {status}"
            remedy = _REMEDIES.get(status, "Start it with other options, or ask it for less.")
            raise UserError(f"The server at {self.url} refused {path}: {reason.rstrip('.')}.", remedy)
        if not isinstance(told, dict | list):
            raise UserError(f"The server at {self.url} answered {path} with something other than JSON.", _OTHER_SERVER)
        return told

    def _answer(self, told: object) -> PeerAnswer:
        """Find the figures in the server's answer. Raises UserError where they are not there."""
        timings = _table(told, "timings")
        tokens = _table(told).get("tokens")
        prompt_ms, predicted_ms = timings.get("prompt_ms"), timings.get("predicted_ms")
        if (
            not isinstance(tokens, list)
            or not tokens
            or not all(type(token) is int for token in tokens)
            or not isinstance(prompt_ms, int | float)
            or not isinstance(predicted_ms, int | float)
        ):
            raise UserError(f"The server at {self.url} tells no token ids or no timings.", _OTHER_SERVER)
        return PeerAnswer(
            tokens=tuple(tokens),
            decode_seconds=predicted_ms / 1000.0,
            first_token_seconds=prompt_ms / 1000.0,
            n_drafted=_count(timings.get("draft_n")) or 0,  # left out where nothing was drafted
            n_accepted=_count(timings.get("draft_n_accepted")) or 0,
        )


def _law(sampling: SamplingParams) -> dict[str, object]:
    """Return the same law in the server's words, with no stage that does nothing: its others would cost it time."""
    greedy = sampling.temperature <= 0.0
    stages = {
        "penalties": sampling.penalises,
        "top_k": greedy or sampling.top_k > 0,
        "top_p": not greedy and sampling.top_p < 1.0,
        "min_p": not greedy and sampling.min_p > 0.0,
        "temperature": not greedy,
    }
    return {
        "samplers": [stage for stage, works in stages.items() if works],
        "temperature": sampling.temperature,
        "top_k": 1 if greedy else sampling.top_k,
        "top_p": sampling.top_p,
        "min_p": sampling.min_p,
        "repeat_penalty": sampling.repeat_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "presence_penalty": sampling.presence_penalty,
        "repeat_last_n": sampling.penalty_last_n,
        # JSON has no infinity: false is the server's word for "never".
        "logit_bias": [
            [token, False if bias == -math.inf else bias] for token, bias in sorted(sampling.logit_bias.items())
        ],
    }


def _table(value: object, *keys: str) -> Mapping[str, Any]:
    """Return the JSON object under these keys; an empty one where there is none."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def _count(value: object) -> int | None:
    return value if type(value) is int else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
