"""Exact mode in the terminal: says so where what it promises was not measured, so that nobody relies on it."""

from collections.abc import Iterator

from draftlight.chat.service import LoadedPair, Loader
from draftlight.cli.arguments import Arguments
from draftlight.cli.rendering import say, say_step
from draftlight.engine.cancel import CancelToken
from draftlight.engine.decoding import Mode
from draftlight.engine.events import ModelLoading
from draftlight.settings import PairSettings

UNMEASURED = (
    "It was not measured yet which verify widths are exact on this computer, so exact mode works like fast mode: "
    "the answer equals plain decoding's up to near-ties."
)


def telling_of_exactness(load: Loader, arguments: Arguments) -> Loader:
    """Return `load`, but saying it once where exact mode is asked for and the pair drafts with unmeasured widths."""

    def load_and_tell(settings: PairSettings, cancel: CancelToken) -> Iterator[ModelLoading | LoadedPair]:
        for step in load(settings, cancel):
            if not isinstance(step, ModelLoading) and Mode(arguments.mode) is Mode.EXACT:
                drafts = step.settings.draft is not None or step.settings.ngram
                if drafts and step.decoder.exact_widths is None:
                    say_step(None)
                    say(UNMEASURED)
            yield step

    return load_and_tell
