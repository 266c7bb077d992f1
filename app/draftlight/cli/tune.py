"""`forge --tune`: tunes a draft model on the person's own chats, where they have allowed it; `--reset` undoes it."""

from contextlib import closing
from pathlib import Path

from draftlight import paths
from draftlight.cli.arguments import Arguments, program_name
from draftlight.cli.choices import starter_target
from draftlight.cli.forge import JsonLines, Screen
from draftlight.cli.generate import INTERRUPTED
from draftlight.cli.interrupts import cancelled_by_ctrl_c
from draftlight.cli.parts import Parts
from draftlight.cli.rendering import say
from draftlight.engine.cancel import CancelToken
from draftlight.errors import UserError
from draftlight.forge.client import Control
from draftlight.forge.consent import let_learn, require_consent
from draftlight.forge.reports import Tuned
from draftlight.forge.tuned_files import TUNING_MINUTES, reset, tuning_request
from draftlight.settings import load_settings

NOT_BETTER = 1
_ALLOWED = (
    "Draft models may learn from your chats. Only when you tune one is {chats} read, on this computer; nothing leaves "
    "it, and nothing is kept but the tuned draft model."
)
_NOT_ALLOWED = "Draft models may not learn from your chats any more."


def is_asked(arguments: Arguments) -> bool:
    """Whether the command is about tuning."""
    return arguments.tune or arguments.reset or arguments.learn_from_chats is not None


def run(arguments: Arguments, parts: Parts) -> int:
    """Allow or forbid it, delete what was tuned, tune, as was asked; return the exit status. Raises UserError.

    That is 0, 1 where the tuned draft model was no better and was not kept, 130 where Ctrl-C stopped it.
    """
    if arguments.learn_from_chats is not None:
        _allow(allowed=arguments.learn_from_chats == "on")
    if arguments.reset:
        _reset(*_pair(arguments))
    return _tune(arguments, parts) if arguments.tune else 0


def _allow(*, allowed: bool) -> None:
    let_learn(allowed=allowed)
    say(_ALLOWED.format(chats=paths.chats_file()) if allowed else _NOT_ALLOWED)


def _reset(target: Path, draft: Path) -> None:
    gone = reset(draft, target)
    say(f"Nothing was tuned from {draft.name} for {target.name}." if gone is None else f"{gone} is deleted.")


def _tune(arguments: Arguments, parts: Parts) -> int:
    require_consent(f"Allow it with: {program_name()} forge --learn-from-chats on")
    target, draft = _pair(arguments)
    minutes = TUNING_MINUTES if arguments.minutes is None else arguments.minutes
    request = tuning_request(target, draft, minutes=minutes)
    cancel = CancelToken()
    screen = JsonLines() if arguments.json else Screen(request)
    kept = False
    try:
        with cancelled_by_ctrl_c(cancel), closing(parts.forge(request, cancel, Control())) as reports:
            for report in reports:
                screen.show(report)
                kept |= isinstance(report, Tuned) and report.path is not None
    finally:
        screen.clear()
    if cancel.cancelled and not screen.is_done:
        say("Stopped. The draft model is as it was.")
        return INTERRUPTED
    return 0 if kept else NOT_BETTER


def _pair(arguments: Arguments) -> tuple[Path, Path]:
    """Return target and draft model: as named, else the last pair's, else the starter's. Raises UserError."""
    last = load_settings(paths.settings_file()).settings.pair
    target = None if arguments.target is None else arguments.target.absolute()
    draft = None if arguments.draft is None else Path(arguments.draft)
    if last is not None and last.draft is not None and target in {None, last.target}:
        target, draft = last.target, draft or last.draft
    elif target is None:
        target, draft = starter_target(), draft or paths.starter_draft()
    if draft is None:
        raise UserError("No draft model is named that could be tuned.", "Name it with: --draft FILE")
    return target, draft
