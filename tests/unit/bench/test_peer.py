"""The rules of asking a llama-server, against a small server that keeps what it was asked."""

import json
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from draftlight.bench.peer import Peer, PeerAnswer, PeerDescription
from draftlight.engine.cancel import CancelToken
from draftlight.engine.sampling import SamplingParams
from draftlight.errors import UserError

GREEDY = SamplingParams(temperature=0.0)
PROPS = {
    "default_generation_settings": {"n_ctx": 2048, "params": {"speculative.types": "none"}},
    "total_slots": 1,
    "model_path": "/models/target.gguf",
    "endpoint_slots": True,
    "build_info": "b1-0c1e570",
}
MODELS = {"object": "list", "data": [{"id": "x", "meta": {"n_vocab": 49152, "size": 96576768, "ftype": "Q4_1"}}]}
SLOTS = [{"id": 0, "n_ctx": 2048, "speculative": True, "is_processing": False}]
TIMINGS = {"cache_n": 0, "prompt_n": 3, "prompt_ms": 250.0, "predicted_n": 4, "predicted_ms": 1500.0}
ANSWER = {"tokens": [278, 253, 265, 2], "content": " b a c", "stop_type": "eos", "timings": TIMINGS}


@dataclass
class Script:
    """What the server says at which path: a status with a JSON value or bytes; and what it was asked."""

    says: dict[str, tuple[int, object]]
    asked: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""
    silent: threading.Event | None = None  # while it is not set, no answer comes
    waiting: threading.Event = field(default_factory=threading.Event)


@contextmanager
def server(script: Script) -> Iterator[Script]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.say()

        def do_POST(self) -> None:
            script.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.say()

        def say(self) -> None:
            if script.silent is not None:
                script.waiting.set()
                script.silent.wait(10)
                return  # nobody listens any more
            status, value = script.says.get(self.path, (404, {"error": {"message": "File Not Found"}}))
            content = value if isinstance(value, bytes) else json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        script.url = f"http://127.0.0.1:{listening.server_port}"
        thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield script
        finally:
            listening.shutdown()
            thread.join()


def answer_of(script: Script, sampling: SamplingParams = GREEDY, **options: bool) -> PeerAnswer | None:
    return Peer(script.url).complete((1, 9690, 198), sampling, 7, 4, CancelToken(), **options)


def asked_for(sampling: SamplingParams, **options: bool) -> dict[str, Any]:
    with server(Script({"/completion": (200, ANSWER)})) as script:
        answer_of(script, sampling, **options)
    (body,) = script.asked
    return body


def test_a_server_is_described_by_what_it_says_of_itself() -> None:
    said: dict[str, tuple[int, object]] = {"/props": (200, PROPS), "/v1/models": (200, MODELS), "/slots": (200, SLOTS)}
    with server(Script(said)) as script:
        assert Peer(script.url + "/v1/").describe() == PeerDescription(
            url=script.url + "/v1/",
            model="/models/target.gguf",
            build="b1-0c1e570",
            n_ctx=2048,
            n_slots=1,
            n_vocab=49152,
            model_bytes=96576768,
            model_type="Q4_1",
            speculative=True,
        )


def test_what_a_server_does_not_say_is_unknown_and_no_failure() -> None:
    with server(Script({"/props": (200, {"endpoint_slots": False}), "/v1/models": (200, {"data": []})})) as script:
        said = Peer(script.url).describe()
    assert (said.model, said.build, said.n_ctx, said.n_slots, said.n_vocab, said.speculative) == ("", *[None] * 5)


def test_an_answer_has_the_server_s_own_tokens_and_times() -> None:
    with server(Script({"/completion": (200, ANSWER)})) as script:
        assert answer_of(script) == PeerAnswer((278, 253, 265, 2), 1.5, 0.25, 0, 0)
    drafting = ANSWER | {"timings": TIMINGS | {"draft_n": 24, "draft_n_accepted": 2}}
    with server(Script({"/completion": (200, drafting)})) as script:
        assert answer_of(script) == PeerAnswer((278, 253, 265, 2), 1.5, 0.25, 24, 2)


def test_the_server_gets_raw_tokens_and_starts_from_an_empty_cache() -> None:
    body = asked_for(GREEDY)
    assert body["prompt"] == [1, 9690, 198]
    assert (body["n_predict"], body["seed"], body["ignore_eos"]) == (4, 7, False)
    assert (body["cache_prompt"], body["return_tokens"], body["stream"]) == (False, True, False)
    assert asked_for(GREEDY, ignore_eos=True)["ignore_eos"] is True


def test_the_server_draws_from_our_law() -> None:
    body = asked_for(SamplingParams(temperature=0.8, top_k=40, top_p=0.95, min_p=0.05))
    assert body["samplers"] == ["top_k", "top_p", "min_p", "temperature"]
    assert (body["temperature"], body["top_k"], body["top_p"], body["min_p"]) == (0.8, 40, 0.95, 0.05)
    body = asked_for(SamplingParams(1.0, 0, 1.0, 0.0, repeat_penalty=1.1, presence_penalty=0.2, penalty_last_n=32))
    assert body["samplers"] == ["penalties", "temperature"]
    assert (body["repeat_penalty"], body["presence_penalty"], body["repeat_last_n"]) == (1.1, 0.2, 32)


def test_temperature_0_is_the_largest_logit_and_no_other_work() -> None:
    body = asked_for(GREEDY)
    assert (body["samplers"], body["top_k"]) == (["top_k"], 1)


def test_a_forbidden_token_is_forbidden_in_the_server_s_way() -> None:
    body = asked_for(SamplingParams(logit_bias={2: -math.inf, 5: 1.5}))
    assert body["logit_bias"] == [[2, False], [5, 1.5]]


def test_a_seed_never_asks_for_a_fresh_one() -> None:
    with server(Script({"/completion": (200, ANSWER)})) as script:
        for seed in (2**32 - 1, 2**63 - 1):
            Peer(script.url).complete([1], GREEDY, seed, 4, CancelToken())
    assert all(0 <= body["seed"] < 2**32 - 1 for body in script.asked)


def test_a_cancel_ends_the_waiting_at_once() -> None:
    cancel = CancelToken()
    with server(Script({"/completion": (200, ANSWER)}, silent=threading.Event())) as script:
        answers: list[PeerAnswer | None] = []

        def ask() -> None:
            answers.append(Peer(script.url).complete([1], GREEDY, 7, 4, cancel))

        thread = threading.Thread(target=ask)
        thread.start()
        assert script.waiting.wait(5)
        cancel.cancel()
        thread.join(5)
        assert answers == [None]
        assert script.silent is not None
        script.silent.set()


def test_a_server_that_is_stuck_is_a_sentence() -> None:
    with server(Script({"/completion": (200, ANSWER)}, silent=threading.Event())) as script:
        with pytest.raises(UserError, match="did not answer in time"):
            Peer(script.url, answer_seconds=0.0).complete([1], GREEDY, 7, 4, CancelToken())
        assert script.silent is not None
        script.silent.set()


def test_no_server_is_a_sentence() -> None:
    with server(Script({})) as script:
        gone = script.url
    with pytest.raises(UserError, match=f"No server answers at {gone}") as caught:
        Peer(gone).describe()
    assert "--peer" in caught.value.remedy


@pytest.mark.parametrize(
    ("status", "said", "sentence", "remedy"),
    [
        (503, {"error": {"message": "Loading model"}}, "refused /completion: Loading model.", "Wait until"),
        (404, {"error": {"message": "File Not Found"}}, "refused /completion: File Not Found.", "llama-server"),
        (400, {"error": {"message": "too long"}}, "refused /completion: too long.", "other options"),
        (500, b"<html>", "refused /completion: status 500.", "other options"),
        (200, b"<html>", "something other than JSON", "llama-server"),
        (200, {"choices": []}, "tells no token ids or no timings", "llama-server"),
        (200, ANSWER | {"tokens": []}, "tells no token ids or no timings", "llama-server"),
        (200, ANSWER | {"tokens": ["a"]}, "tells no token ids or no timings", "llama-server"),
        (200, ANSWER | {"timings": {"prompt_ms": "1"}}, "tells no token ids or no timings", "llama-server"),
    ],
)
def test_what_the_server_cannot_do_is_a_sentence(status: int, said: object, sentence: str, remedy: str) -> None:
    with server(Script({"/completion": (status, said)})) as script, pytest.raises(UserError) as caught:
        answer_of(script)
    assert script.url in caught.value.sentence
    assert sentence in caught.value.sentence
    assert remedy in caught.value.remedy


@pytest.mark.parametrize("url", ["", "localhost:8080", "ftp://a", "http://", "http://a:port", "http://[", "/v1"])
def test_what_is_no_address_is_a_sentence(url: str) -> None:
    with pytest.raises(UserError, match="is not the address of a server"):
        Peer(url)
