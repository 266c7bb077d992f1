"""Exact mode in the terminal: says so where it cannot be what it promises, or only plainly, so that nobody wonders."""

from collections.abc import Iterator

from draftlight.chat.service import LoadedPair, Loader
from draftlight.cli.arguments import Arguments
from draftlight.cli.choices import asked_mode
from draftlight.cli.rendering import say, say_step
from draftlight.engine.cancel import CancelToken
from draftlight.engine.decoding import Mode
from draftlight.engine.events import ModelLoading
from draftlight.settings import PairSettings

UNMEASURED = (
    "It was not measured yet which verify widths are exact on this computer, so exact mode works like fast mode: "
    "the answer equals plain decoding's up to near-ties."
)
PLAIN_ONLY = (
    "On this computer no verify of more than one token has the same bits as plain decoding, so exact mode runs plain: "
    "nothing is drafted. --mode fast drafts."
)


def telling_of_exactness(load: Loader, arguments: Arguments) -> Loader:
    """Return `load`, but saying it once where exact mode is asked for and cannot draft, or was not measured."""

    def load_and_tell(settings: PairSettings, cancel: CancelToken) -> Iterator[ModelLoading | LoadedPair]:
        for step in load(settings, cancel):
            if not isinstance(step, ModelLoading) and asked_mode(arguments) is Mode.EXACT:
                sentence = _doubt(step, greedy=arguments.temperature <= 0.0 and arguments.repeat_penalty == 1.0)
                if sentence and arguments.draft_length != 0:
                    say_step(None)
                    say(sentence)
            yield step

    return load_and_tell


def _doubt(pair: LoadedPair, *, greedy: bool) -> str:
    """Return what the person should know of exact mode with this pair; empty where it does as it says."""
    if pair.settings.draft is None and not pair.settings.ngram:
        return ""
    facts = pair.decoder.facts
    if facts is None:
        return UNMEASURED
    widths = facts.exact_widths | facts.near_exact if greedy else facts.exact_widths  # as engine.exactness has it
    return "" if widths - {1} else PLAIN_ONLY
