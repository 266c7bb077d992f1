"""How much speed is left beside one busy process, on real models; not part of the default run.

    .venv/bin/python tests/busy.py TARGET [DRAFT] [--peer NAME=URL ...] [--rounds N] [--tokens N]

Each round answers one question idle and beside a process that never rests, in turns, with plain decoding, with AUTO and
by each llama-server that is named. The figure is the busy speed over the idle one, of the same arm in the same round.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from draftlight.bench.peer import Peer
from draftlight.engine.cancel import CancelToken
from draftlight.engine.decoding import GenerationRequest
from draftlight.engine.events import GenerationFinished, ModelLoading
from draftlight.engine.sampling import SamplingParams
from draftlight.llama import loader
from draftlight.llama.loader import LoadedLlamaPair
from draftlight.settings import PairSettings

QUESTION = "Write a short story about a lighthouse keeper who finds a letter in a bottle."
SETTLING_SECONDS = 2.0  # after which the scheduler and the threads have taken note of the other process
GREEDY = SamplingParams(temperature=0.0)


@contextmanager
def busy_process() -> Iterator[None]:
    """Keep one core busy."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        try:
            time.sleep(SETTLING_SECONDS)
            yield
        finally:
            process.kill()


def loaded(settings: PairSettings) -> LoadedLlamaPair:
    for step in loader.load(settings, CancelToken()):
        if not isinstance(step, ModelLoading):
            return step
    raise RuntimeError("nothing was loaded")


def speed_of(pair: LoadedLlamaPair, prompt: tuple[int, ...], draft_length: int | None, n_tokens: int) -> float:
    """Return tokens a second, of those after the first."""
    endless = SamplingParams(temperature=0.0, logit_bias=dict.fromkeys(pair.decoder.end_tokens, float("-inf")))
    asked = GenerationRequest(prompt, endless, 1, draft_length, n_tokens)
    finished = list(pair.decoder.generate(asked, CancelToken()))[-1]
    assert isinstance(finished, GenerationFinished)
    return finished.stats.tokens_per_second


def speed_of_peer(peer: Peer, prompt: tuple[int, ...], n_tokens: int) -> float:
    told = peer.complete(prompt, GREEDY, 1, n_tokens, CancelToken(), ignore_eos=True)
    assert told is not None
    return (len(told.tokens) - 1) / told.decode_seconds


def run(arguments: argparse.Namespace) -> int:
    """Measure, print one line of JSON."""
    pair = loaded(PairSettings(arguments.target, arguments.draft, ngram=arguments.draft is not None))
    turn = pair.vocabulary.control_tokens.get("<|im_start|>")
    text = pair.vocabulary.encode(f"user\n{QUESTION}\nassistant\n")
    prompt = tuple(text if turn is None else [turn, *text])
    arms: dict[str, Callable[[], float]] = {
        "plain": partial(speed_of, pair, prompt, 0, arguments.tokens),
        "auto": partial(speed_of, pair, prompt, None, arguments.tokens),
    }
    for named in arguments.peer:
        name, _, url = named.partition("=")
        arms[name] = partial(speed_of_peer, Peer(url), prompt, arguments.tokens)
    left: defaultdict[str, list[float]] = defaultdict(list)
    for _ in range(arguments.rounds):
        for name, speed in arms.items():
            speed()  # so that what the last busy time changed is forgotten
            idle = speed()
            with busy_process():
                busy = speed()
            left[name].append(busy / idle)
            sys.stderr.write(f"{name}: {idle:.1f} tokens a second idle, {busy:.1f} beside a busy process\n")
    pair.close()
    figures = {
        name: {"median": round(statistics.median(ratios), 3), "all": [round(ratio, 3) for ratio in ratios]}
        for name, ratios in left.items()
    }
    sys.stdout.write(json.dumps(figures) + "\n")
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="How much speed is left beside one busy process.")
    parser.add_argument("target", type=Path)
    parser.add_argument("draft", type=Path, nargs="?")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=URL")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=64)
    sys.exit(run(parser.parse_args()))
