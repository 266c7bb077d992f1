"""Half an hour of chats as a restless person has them, with real models; not part of the default run.

    .venv/bin/python tests/soak.py [MINUTES] [SEED]

Random questions, answers cut short, regenerated, branched, other pairs and settings loaded in between, all through the
service and a real database. Again and again an answer's tokens are made anew, plain, from empty caches: the caches the
answer was made with must not have drifted from the text. At the end memory must not have grown.
"""

import gc
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from draftlight import paths
from draftlight.chat.prompt import PromptTooLong
from draftlight.chat.service import ChatService, GenerationOptions, LoadedPair
from draftlight.engine.cancel import CancelToken
from draftlight.engine.decoding import GenerationRequest, Mode, SpeculativeDecoder
from draftlight.engine.events import Event, GenerationFinished, ModelLoading, RoundVerified
from draftlight.engine.sampling import SamplingParams
from draftlight.history.records import Role
from draftlight.history.store import HistoryStore
from draftlight.llama import loader
from draftlight.settings import PairSettings

MODELS = Path(__file__).resolve().parents[1] / "models"
WORDS = (
    "river",
    "lamp",
    "seven",
    "Lisbon",
    "recursive",
    "quiet",
    "budget",
    "orange",
    "tuple",
    "because",
    "never",
    "list",
)
SWITCH, REGENERATE, NEW_CHAT, CANCEL, CHECK = 0.04, 0.2, 0.15, 0.25, 0.2  # chances
GROWTH_MB = 60.0  # allowed after the first quarter: allocators keep some


@dataclass
class Soak:
    """One run. `requests` are those that the engine was given, each with what it answered."""

    dice: random.Random
    folder: Path
    pair: LoadedPair | None = None
    counts: Counter[str] = field(default_factory=Counter)
    requests: list[tuple[GenerationRequest, GenerationFinished]] = field(default_factory=list)

    def open_store(self) -> HistoryStore:
        return HistoryStore.open(self.folder / "chats.sqlite3")

    def load(self, settings: PairSettings, cancel: CancelToken) -> Iterator[ModelLoading | LoadedPair]:
        for step in loader.load(settings, cancel):
            if isinstance(step, ModelLoading):
                yield step
            else:
                self._listen(step.decoder)
                self.pair = step
                yield step

    def _listen(self, decoder: SpeculativeDecoder) -> None:
        """Keep what the engine is asked and answers, to compare it later."""
        generate = decoder.generate

        def listening(request: GenerationRequest, cancel: CancelToken) -> Iterator[Event]:
            for event in generate(request, cancel):
                if isinstance(event, GenerationFinished):
                    self.requests.append((request, event))
                    self.counts["tokens"] += len(event.tokens)
                    self.counts["accepted"] += event.stats.n_accepted
                    self.counts["failed audits"] += event.stats.n_audit_failures
                yield event

        decoder.generate = listening  # type: ignore[method-assign]  # a listener, for this run alone

    def settings(self) -> PairSettings:
        draft = self.dice.choice([None, MODELS / "starter-draft.gguf"])
        return PairSettings(
            target=MODELS / paths.starter_target().name,
            draft=draft,
            ngram=self.dice.random() < 0.6,
            n_ctx=self.dice.choice([512, 2048]),
        )

    def options(self) -> GenerationOptions:
        return GenerationOptions(
            sampling=SamplingParams(
                temperature=self.dice.choice([0.0, 0.0, 0.4, 0.8, 1.2]),
                top_k=self.dice.choice([0, 40]),
                min_p=self.dice.choice([0.0, 0.05]),
                repeat_penalty=self.dice.choice([1.0, 1.0, 1.1]),
            ),
            draft_length=self.dice.choice([None, None, 0, 1, 3, 7]),
            max_new_tokens=self.dice.choice([1, 5, 40, 120]),
            mode=Mode.EXACT,
        )

    def question(self) -> str:
        words = self.dice.choices(WORDS, k=self.dice.choice([3, 12, 80, 300]))
        return " ".join(words).capitalize() + self.dice.choice(["?", ".", ": repeat this.", " \U0001f642"])

    def answer(self, service: ChatService, store: HistoryStore, conversation: int) -> None:
        """Ask, or ask again; perhaps stop in the middle."""
        messages = [message for message in store.messages(conversation) if message.role is Role.ASSISTANT]
        cancel, options = CancelToken(), self.options()
        stop_at = self.dice.randrange(1, 30) if self.dice.random() < CANCEL else None
        if messages and self.dice.random() < REGENERATE:
            events = service.regenerate(self.dice.choice(messages).id, options, cancel)
            self.counts["regenerated"] += 1
        else:
            events = service.send(conversation, self.question(), options, cancel)
            self.counts["sent"] += 1
        n_rounds = 0
        for event in events:
            n_rounds += isinstance(event, RoundVerified)
            if stop_at is not None and n_rounds >= stop_at and not cancel.cancelled:
                cancel.cancel()
                self.counts["stopped"] += 1

    def check(self) -> None:
        """Make the last answer again from empty caches, plain, and compare every token."""
        if self.pair is None or not self.requests:
            return
        request, finished = self.requests[-1]
        decoder = self.pair.decoder
        decoder.forget()
        n_tokens = max(1, len(finished.tokens))
        plain = GenerationRequest(
            request.prompt, request.sampling, request.seed, 0, n_tokens, request.stop, mode=Mode.EXACT
        )
        again = list(SpeculativeDecoder.generate(decoder, plain, CancelToken()))[-1]
        assert isinstance(again, GenerationFinished)
        if again.tokens[: len(finished.tokens)] != finished.tokens:
            self.counts["DRIFTED"] += 1
            json.dump({"request": repr(request), "was": finished.tokens, "is": again.tokens}, sys.stderr)
        self.counts["checked"] += 1


def run(minutes: float, seed: int) -> int:
    """Soak; print what happened; return 0 where nothing drifted, failed or grew."""
    process, memory = psutil.Process(), []
    with tempfile.TemporaryDirectory() as folder:
        soak = Soak(random.Random(seed), Path(folder))  # noqa: S311 - a test's dice
        service = ChatService(soak.open_store, soak.load)
        ends = time.monotonic() + 60.0 * minutes
        conversation = 0
        while time.monotonic() < ends:
            if soak.pair is None or soak.dice.random() < SWITCH:
                soak.requests.clear()
                list(service.load(soak.settings(), CancelToken()))
                soak.counts["pairs loaded"] += 1
                gc.collect()
                memory.append(process.memory_info().rss / 1e6)
            with soak.open_store() as store:
                if not conversation or soak.dice.random() < NEW_CHAT:
                    conversation = store.create_conversation().id
                try:
                    soak.answer(service, store, conversation)
                except PromptTooLong:  # as it should be: a long message to a pair with a short context
                    soak.counts["too long"] += 1
            if soak.dice.random() < CHECK:
                soak.check()
        service.unload()
    settled = memory[len(memory) // 4 :]
    growth = max(settled[-3:]) - max(settled[:3]) if len(settled) > 3 else 0.0
    figures = {**soak.counts, "memory_mb": [round(mb) for mb in memory], "growth_mb": round(growth, 1)}
    sys.stdout.write(json.dumps(figures) + "\n")
    return int(bool(soak.counts["DRIFTED"] or soak.counts["failed audits"] or growth > GROWTH_MB))


if __name__ == "__main__":
    sys.exit(run(float(sys.argv[1]) if len(sys.argv) > 1 else 30.0, int(sys.argv[2]) if len(sys.argv) > 2 else 1))
