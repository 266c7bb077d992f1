"""The command line as typed values. Imports nothing but the standard library, so that `--version` answers at once."""

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from draftlight import __version__
from draftlight.errors import UserError

MAX_DRAFT_LENGTH = 16  # settings.MAX_DRAFT_LENGTH, which takes a tenth of a second to import
FORGE_MINUTES = 60.0
_Number = TypeVar("_Number", int, float)


class Arguments(argparse.Namespace):
    """What was asked for. A command sets the fields that it has; `command` None asks for the window."""

    command: str | None = None
    json: bool = False
    # which models, and how they are loaded
    target: Path | None = None
    draft: str | None = None
    ctx: int = 0
    threads: int = 0
    kv: str = "auto"
    gpu_layers: int = 0
    draft_gpu_layers: int = 0
    device: str = ""
    draft_device: str = ""
    # one answer
    prompt: str = ""
    raw: bool = False
    system: str = ""
    draft_length: int | None = None
    temperature: float = 0.8
    seed: int | None = None
    max_tokens: int = 512
    mode: str = "auto"
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    repeat_penalty: float = 1.0
    stop: Sequence[str] = ()
    # bench
    prompts: Path | None = None
    arms: str = "plain,auto"
    limit: int = 0
    repeats: int = 1
    minutes: float | None = None
    context: int = 0
    warm: bool = False
    peers: Sequence[str] = ()
    ignore_eos: bool = False
    report: Path | None = None
    # forge
    size: str = "auto"
    out: Path | None = None
    recipe: Path | None = None
    weights: Path | None = None
    resume: bool = False
    start_over: bool = False
    outlook: bool = False
    anyway: bool = False
    tune: bool = False
    reset: bool = False
    learn_from_chats: str | None = None
    # models
    folders: Sequence[Path] = ()


class _Parser(argparse.ArgumentParser):
    """Reports a wrong command line like every other mistake, with a sentence and a remedy; takes no abbreviations."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - argparse's own settings, passed through
        super().__init__(allow_abbrev=False, **settings)

    def error(self, message: str) -> NoReturn:
        sentence = message[:1].upper() + message[1:].rstrip(".") + "."
        raise UserError(f"The command line was not understood: {sentence}", f"See `{self.prog} --help`.")


def parse(argv: Sequence[str]) -> Arguments:
    """Return the arguments as values. A path to a .gguf file alone asks for the window with that target.

    Raises UserError for a command line that makes no sense, SystemExit after `--help` and `--version`.
    """
    parser = _parser()
    if len(argv) == 1 and argv[0].lower().endswith(".gguf"):
        return Arguments(target=Path(argv[0]))
    return parser.parse_args(argv, namespace=Arguments())


def program_name() -> str:
    """Return what the person types to start the program: by its name where it is installed, else from the checkout."""
    return "draftlight" if Path(sys.argv[0]).stem == "draftlight" else "python3 app"


def _parser() -> _Parser:
    parser = _Parser(
        prog=program_name(),
        description="Local chat that shows speculative decoding as it happens. Without a command the window opens; "
        "a .gguf file alone opens the window with that target model.",
    )
    parser.add_argument("--version", action="version", version=f"draftlight {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")

    generate = commands.add_parser("generate", help="answer one prompt and end")
    generate.add_argument("prompt", metavar="PROMPT", help="the prompt; - reads it from the standard input")
    generate.add_argument("--raw", action="store_true", help="give the prompt to the model as it is, no chat template")
    generate.add_argument("--stop", action="append", default=[], metavar="TEXT", help="end before it; repeatable")
    _add_json(generate, "one JSON object a line for each event")
    _add_pair(generate)
    _add_answer(generate)

    chat = commands.add_parser("chat", help="chat in the terminal; the chats are the window's")
    _add_pair(chat)
    _add_answer(chat)

    probe = commands.add_parser("probe", help="try a pair out in a child process and say what works here")
    _add_json(probe, "the result as one JSON object")
    _add_pair(probe)

    bench = commands.add_parser("bench", help="measure how much faster each way to draft is, other servers beside them")
    _add_json(bench, "the report as one JSON object, on one line")
    _add_pair(bench)
    _add_bench(bench)

    forge = commands.add_parser("forge", help="make a draft model for a target that has none")
    _add_json(forge, "what the run reports, one JSON object a line")
    _add_forge(forge)

    models = commands.add_parser("models", help="list the model files found here, and which may draft for which")
    models.add_argument("folders", nargs="*", type=Path, metavar="FOLDER", help="further folders to look in")
    _add_json(models, "the list as one JSON object")
    return parser


def _add_json(parser: argparse.ArgumentParser, meaning: str) -> None:
    parser.add_argument("--json", action="store_true", help=meaning)


def _add_pair(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("models (the starter pair where neither is named)")
    group.add_argument("--target", type=Path, metavar="FILE", help="GGUF file of the target model")
    group.add_argument(
        "--draft", metavar="FILE|ngram|none", help="GGUF file of a draft model, which n-grams help; or ngram, none"
    )
    group.add_argument("--ctx", type=_number(int, 0), default=0, metavar="N", help="context length; 0: the model's own")
    group.add_argument("--threads", type=_number(int, 0), default=0, metavar="N", help="0: as many as measure best")
    group.add_argument(
        "--kv",
        choices=("auto", "q8_0", "f16", "f32"),
        default="auto",
        help="type of both caches; auto: what measures best",
    )
    layers = _number(int, 0)
    group.add_argument("--gpu-layers", type=layers, default=0, metavar="N", help="layers of the target on the GPU")
    group.add_argument(
        "--draft-gpu-layers", type=layers, default=0, metavar="N", help="layers of the draft model there"
    )
    group.add_argument("--device", default="", metavar="NAME", help="the target's GPU; `probe` lists them")
    group.add_argument("--draft-device", default="", metavar="NAME", help="the draft model's")


def _add_answer(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the answer")
    group.add_argument(
        "--k",
        dest="draft_length",
        type=draft_length,
        metavar="N|auto",
        help="draft length K, 0 to 16; auto, the default: as long as it pays",
    )
    group.add_argument("--temperature", type=temperature, default=0.8, metavar="T", help="0 is greedy")
    group.add_argument("--seed", type=seed, metavar="S", help="a fresh one where it is left out")
    group.add_argument("--max-tokens", type=_number(int, 1), default=512, metavar="N", help="longest answer")
    _add_mode(group)
    group.add_argument("--top-k", type=_number(int, 0), default=40, metavar="N", help="0: off")
    group.add_argument("--top-p", type=_number(float, 0, 1), default=0.95, metavar="P", help="1: off")
    group.add_argument("--min-p", type=_number(float, 0, 1), default=0.05, metavar="P", help="0: off")
    group.add_argument("--repeat-penalty", type=_number(float, 0.1, 5), default=1.0, metavar="R", help="1: off")
    group.add_argument("--system", default="", metavar="TEXT", help="system prompt")


def _add_mode(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--mode",
        choices=("exact", "fast", "auto"),
        default="auto",
        help="exact: plain decoding's text, bit for bit; fast: up to near-ties; auto: what the pair does best",
    )


def _add_bench(parser: argparse.ArgumentParser) -> None:
    asked = parser.add_argument_group("what is asked")
    asked.add_argument("--prompts", type=Path, metavar="FILE", help="JSON Lines in MT-bench's form; else our own suite")
    asked.add_argument(
        "--limit", type=_number(int, 1), default=0, metavar="N", help="only N prompts, spread over kinds"
    )
    asked.add_argument(
        "--context", type=_number(int, 0), default=0, metavar="N", help="text before each prompt, to about N tokens"
    )
    asked.add_argument(
        "--warm", action="store_true", help="our caches hold the prompt, as in a chat; else they are empty"
    )
    asked.add_argument("--temperature", type=temperature, default=0.0, metavar="T", help="0, the default, is greedy")
    asked.add_argument("--seed", type=seed, metavar="S", help="of the first prompt; the next ones count up from it")
    asked.add_argument("--max-tokens", type=_number(int, 2), default=128, metavar="N", help="longest answer")
    asked.add_argument("--ignore-eos", action="store_true", help="always N tokens: the end tokens are made impossible")
    compared = parser.add_argument_group("what is compared")
    compared.add_argument(
        "--arms",
        default="plain,auto",
        metavar="A,B",
        help="plain, auto, model and ngram (auto with one source), k1 to k16 (draft model), ngram1 to ngram16",
    )
    _add_mode(compared)
    compared.add_argument(
        "--peer",
        dest="peers",
        action="append",
        default=[],
        metavar="NAME=URL",
        help="a llama-server with the same target; repeatable",
    )
    compared.add_argument("--repeats", type=_number(int, 1), default=1, metavar="R", help="times each prompt is asked")
    compared.add_argument(
        "--minutes",
        type=_number(float, 0),
        metavar="M",
        help="begin no further prompt after M; 0: no limit",
    )
    compared.add_argument("--report", type=Path, metavar="FOLDER", help="write report.md, report.json and report.html")


def _add_forge(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target", nargs="?", type=Path, metavar="TARGET", help="GGUF file of the target model; the starter target's"
    )
    made = parser.add_argument_group("what is made")
    made.add_argument(
        "--minutes", type=_number(float, 0.1), metavar="M", help="time it may take; 60, and 30 with --tune"
    )
    made.add_argument(
        "--size",
        choices=("auto", "narrow", "pruned"),
        default="auto",
        help="new narrow layers, some of the target's own, or what promises more",
    )
    made.add_argument("--recipe", type=Path, metavar="FILE", help="a configuration in TOML instead of time and size")
    made.add_argument("--out", type=Path, metavar="FILE", help="the draft model's file; else among your own models")
    made.add_argument(
        "--weights", type=Path, metavar="FOLDER", help="the same model as safetensors, read instead of TARGET's weights"
    )
    course = parser.add_argument_group("how it goes")
    begun = course.add_mutually_exclusive_group()
    begun.add_argument("--resume", action="store_true", help="go on with a run that did not end")
    begun.add_argument("--start-over", action="store_true", help="delete what such a run has done, and begin anew")
    course.add_argument("--outlook", action="store_true", help="say what a draft model could bring here, and end")
    course.add_argument("--anyway", action="store_true", help="make it even where it can only slow answers down")
    tuned = parser.add_argument_group("learning from your own chats, on this computer alone")
    tuned.add_argument(
        "--learn-from-chats", choices=("on", "off"), help="allow it, or no longer; off unless you have allowed it"
    )
    tuned.add_argument(
        "--tune",
        action="store_true",
        help="tune a draft model on what TARGET answered you; kept if newer answers than those show that it is better",
    )
    tuned.add_argument("--draft", metavar="FILE", help="the draft model to tune; the last pair's, else the starter's")
    tuned.add_argument("--reset", action="store_true", help="delete what was tuned from that draft model")


def draft_length(text: str) -> int | None:
    """Read a draft length: 0 to 16, or None for `auto`. Raises argparse.ArgumentTypeError."""
    return None if text == "auto" else _number(int, 0, MAX_DRAFT_LENGTH)(text)


def temperature(text: str) -> float:
    """Read a temperature: 0 to 5. Raises argparse.ArgumentTypeError."""
    return _number(float, 0, 5)(text)


def seed(text: str) -> int:
    """Read a seed: what SQLite can keep and is not negative. Raises argparse.ArgumentTypeError."""
    return _number(int, 0, 2**63 - 1)(text)


def _number(kind: Callable[[str], _Number], low: float, high: float = math.inf) -> Callable[[str], _Number]:
    """Return a reader of numbers of that kind from `low` to `high`."""

    def read(text: str) -> _Number:
        try:
            value = kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number of the right kind") from None
        if not low <= value <= high:
            bounds = f"at least {low}" if high == math.inf else f"from {low} to {high}"
            raise argparse.ArgumentTypeError(f"{text} is out of range, it must be {bounds}")
        return value

    return read
