"""`bench`: how much faster each way to draft is, on this machine, with these models; other servers beside them."""

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from draftlight import __version__, paths
from draftlight.bench.arms import Arm, parse_arms, parse_peers, require_sources
from draftlight.bench.doubts import Circumstances
from draftlight.bench.figures import figures
from draftlight.bench.machine import load_average, machine
from draftlight.bench.measurement import Answerer, Caches, EngineArm, EngineSetup
from draftlight.bench.page import write_folder
from draftlight.bench.peer import Peer, PeerDescription
from draftlight.bench.prompts import BenchPrompt, Turn, Writer, WrittenPrompt, read_prompts, spread, written
from draftlight.bench.report import BenchReport, as_json, as_markdown
from draftlight.bench.rival import PeerArm
from draftlight.bench.runner import Plan, Progress, Results
from draftlight.bench.runner import run as measure
from draftlight.chat.prompt import ChatMessage, ChatVocabulary, build_prompt
from draftlight.chat.service import LoadedPair
from draftlight.cli.arguments import Arguments
from draftlight.cli.choices import pair_settings
from draftlight.cli.generate import INTERRUPTED
from draftlight.cli.interrupts import cancelled_by_ctrl_c
from draftlight.cli.json_lines import plain_value
from draftlight.cli.parts import Parts
from draftlight.cli.rendering import ProgressBar, say, say_step
from draftlight.engine.cancel import CancelToken
from draftlight.engine.decoding import GenerationRequest, Mode
from draftlight.engine.events import DraftSource, ModelLoading
from draftlight.engine.sampling import SamplingParams
from draftlight.errors import UserError
from draftlight.settings import PairSettings

_NO_LIMIT = 2**31  # of a prompt's length while it is written; what does not fit is refused afterwards
_NEVER = -1e9  # a logit bias that no token survives, as servers do for `ignore_eos`
_DEFAULT_SEED = 1


def run(arguments: Arguments, parts: Parts) -> int:
    """Measure and report; return the exit status: 0, or 130 where Ctrl-C ended it early. Raises UserError."""
    arms = parse_arms(arguments.arms)
    addresses = parse_peers(arguments.peers, arms)
    suite = read_prompts(paths.bench_suite())
    prompts = suite if arguments.prompts is None else read_prompts(arguments.prompts)
    prompts = spread(prompts, arguments.limit or len(prompts))
    peers = {address.name: Peer(address.url) for address in addresses}
    described = {name: peer.describe() for name, peer in peers.items()}
    cancel = CancelToken()
    with cancelled_by_ctrl_c(cancel):
        pair = _load(_with_ngrams(arguments, arms), parts, cancel)
        try:
            bench = _Bench(arguments, pair, arms, peers, described, parts.library)
            report, results = bench.measured(bench.written(prompts, suite), cancel)
        finally:
            pair.close()
    _write(report, arguments)
    if results.failure is not None:
        raise results.failure
    return INTERRUPTED if results.interrupted else 0


def _with_ngrams(arguments: Arguments, arms: Sequence[Arm]) -> PairSettings:
    """The pair that was named, with the text's own repetitions to draft from where an arm may use them."""
    settings = pair_settings(arguments)
    wanted = any(arm.drafts and (arm.sources is None or DraftSource.NGRAM in arm.sources) for arm in arms)
    return replace(settings, ngram=wanted)


def _load(settings: PairSettings, parts: Parts, cancel: CancelToken) -> LoadedPair:
    for step in parts.load(settings, cancel):
        if not isinstance(step, ModelLoading):
            say_step(None)
            for notice in step.notices:
                say(notice)
            return step
        say_step(step)
    raise KeyboardInterrupt  # cancelled before the models were ready


@dataclass(frozen=True, slots=True)
class _Bench:
    """What was asked for, and what it is measured with."""

    arguments: Arguments
    pair: LoadedPair
    arms: Sequence[Arm]
    peers: Mapping[str, Peer]
    described: Mapping[str, PeerDescription]
    library: Callable[[], str]

    def written(self, prompts: Sequence[BenchPrompt], suite: Sequence[BenchPrompt]) -> tuple[WrittenPrompt, ...]:
        """Return the prompts' tokens, each with enough of the suite's other texts before it. Raises UserError."""
        write = prompt_writer(self.pair.vocabulary)
        made = []
        for place, prompt in enumerate(prompts):
            start = place % len(suite)
            before = [other for other in (*suite[start:], *suite[:start]) if other.text != prompt.text]
            made.append(written(prompt, write, before, self.arguments.context))
        n_ctx = min(self.pair.decoder.n_ctx, *(peer.n_ctx or _NO_LIMIT for peer in self.described.values()), _NO_LIMIT)
        longest = max(made, key=lambda each: len(each.tokens))
        if len(longest.tokens) + self.arguments.max_tokens > n_ctx:
            raise UserError(
                f"Prompt {longest.id} has {len(longest.tokens):,} tokens; with an answer of "
                f"{self.arguments.max_tokens:,} it does not fit the context of {n_ctx:,}.",
                "Ask for a longer --ctx, of the peers too, or for less with --max-tokens or --context.",
            )
        return tuple(made)

    def measured(self, prompts: tuple[WrittenPrompt, ...], cancel: CancelToken) -> tuple[BenchReport, Results]:
        """Run all arms and work the figures out. Raises UserError for an arm whose drafts are not to be had."""
        arguments, decoder = self.arguments, self.pair.decoder
        require_sources(self.arms, decoder.sources)
        seed = _DEFAULT_SEED if arguments.seed is None else arguments.seed
        plan = Plan(prompts, arguments.max_tokens, seed, arguments.repeats, 60.0 * (arguments.minutes or 0.0))
        settings = self._settings(plan)
        bar = ProgressBar(sys.stderr)
        started, load_before = time.perf_counter(), load_average()
        try:
            results = measure(plan, self._answerers(), cancel, lambda now: _show(bar, now))
        finally:
            bar.clear()
        settings["seconds"] = round(time.perf_counter() - started, 1)
        settings["load_average"] = [load_before, load_average()]
        names = [*(arm.name for arm in self.arms), *self.peers]
        found = figures(results, names, frozenset(self.peers), greedy=arguments.temperature == 0)
        report = BenchReport(
            figures=found,
            settings=settings,
            memory=results.memory,
            how=Circumstances(
                interrupted=results.interrupted,
                out_of_time=results.out_of_time,
                exact=self._mode_done() is Mode.EXACT and decoder.exact_widths is not None,
                warm=arguments.warm,
                drafting_peers=frozenset(name for name, peer in self.described.items() if peer.speculative),
            ),
            facts=decoder.facts,
            notices=self.pair.notices,
        )
        return report, results

    def _answerers(self) -> list[Answerer]:
        arguments = self.arguments
        bias = dict.fromkeys(self.pair.decoder.end_tokens, _NEVER) if arguments.ignore_eos else {}
        setup = EngineSetup(
            decoder=self.pair.decoder,
            sampling=SamplingParams(temperature=arguments.temperature, logit_bias=bias),
            mode=self._mode(),
            facts=self.pair.decoder.facts,
            caches=Caches(self.pair.decoder, warm=arguments.warm),
        )
        engine: list[Answerer] = [EngineArm(arm, setup) for arm in self.arms]
        rivals = [
            PeerArm(name, peer, SamplingParams(arguments.temperature), ignore_eos=arguments.ignore_eos)
            for name, peer in self.peers.items()
        ]
        return [*engine, *rivals]

    def _mode(self) -> Mode | None:
        return None if self.arguments.mode == "auto" else Mode(self.arguments.mode)

    def _mode_done(self) -> Mode:
        """The mode that the pair works in."""
        request = GenerationRequest((0,), SamplingParams(self.arguments.temperature), 0, mode=self._mode())
        return self.pair.decoder.mode_for(request)

    def _settings(self, plan: Plan) -> dict[str, object]:
        """Everything that the figures depend on."""
        arguments, decoder = self.arguments, self.pair.decoder
        lengths = sorted(len(prompt.tokens) for prompt in plan.prompts)
        sampling: dict[str, object] = plain_value(SamplingParams(temperature=arguments.temperature))
        del sampling["logit_bias"]  # is ignore_eos
        return {
            "pair": plain_value(self.pair.settings),
            "n_ctx": decoder.n_ctx,
            "exact_widths": None if decoder.exact_widths is None else sorted(decoder.exact_widths),
            "mode": {"asked": arguments.mode, "done": self._mode_done()},
            "sampling": sampling,
            "seed": plan.seed,
            "max_tokens": plan.max_tokens,
            "ignore_eos": arguments.ignore_eos,
            "prompts": "our suite" if arguments.prompts is None else str(arguments.prompts),
            "n_prompts": len(plan.prompts),
            "prompt_tokens": {"least": lengths[0], "median": lengths[len(lengths) // 2], "most": lengths[-1]},
            "context": arguments.context,
            "warm": arguments.warm,
            "repeats": plan.repeats,
            "minutes": arguments.minutes or 0.0,
            "arms": [arm.name for arm in self.arms],
            "peers": plain_value(self.described),
            "draftlight": __version__,
            "library": self.library(),
            "machine": machine(),
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
        }


def prompt_writer(vocabulary: ChatVocabulary) -> Writer:
    """Return what turns a conversation into tokens: the model's template, or the bare text where it has none."""

    def by_template(turns: Sequence[Turn]) -> tuple[int, ...]:
        messages = [ChatMessage(turn.role, turn.text) for turn in turns]
        return build_prompt(vocabulary, messages, _NO_LIMIT, 0).tokens

    def as_text(turns: Sequence[Turn]) -> tuple[int, ...]:
        tokens = vocabulary.encode("\n\n".join(turn.text for turn in turns))
        return (vocabulary.bos, *tokens) if vocabulary.add_bos and vocabulary.bos is not None else tuple(tokens)

    return by_template if vocabulary.chat_template else as_text


def _show(bar: ProgressBar, now: Progress) -> None:
    bar.show(now.n_done, now.n_total, now.now)


def _write(report: BenchReport, arguments: Arguments) -> None:
    """Write the report: into its folder, and to the standard output as Markdown or as one line of JSON."""
    if arguments.report is not None:
        for path in write_folder(report, arguments.report):
            say(f"Written: {path}")
    if arguments.json:
        sys.stdout.write(json.dumps(as_json(report), allow_nan=False) + "\n")
    else:
        sys.stdout.write(as_markdown(report))
    sys.stdout.flush()
