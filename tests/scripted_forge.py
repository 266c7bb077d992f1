"""A forge that plays a script: the child process of a run, without torch. Started with a behaviour and the request."""

import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

from draftlight.forge.recipe import Kind, Recipe, Shape
from draftlight.forge.reports import (
    AcceptanceMeasured,
    Card,
    ChatsWritten,
    Failed,
    Forged,
    Outlook,
    Report,
    Stage,
    StageBegun,
    Trained,
    as_line,
)
from draftlight.forge.request import ForgeRequest, from_argument

SHAPE = Shape(Kind.NARROW, n_layers=4, width=256)
WORTH_IT = Outlook(SHAPE.label, (1.0, 1.1, 1.2, 1.3, 1.6), 0.08, 0.6)
IN_VAIN = Outlook(SHAPE.label, (1.0, 1.6, 2.0, 2.5, 3.4), 0.08, 0.4)
NEVER = Outlook(SHAPE.label, (1.0, 2.1, 3.2, 4.3, 5.4), 0.08, 0.4)
CARD = Card(
    target="twin-target",
    shape=SHAPE.label,
    quantisation="Q8_0",
    n_bytes=19_300_000,
    acceptance=0.58,
    n_places=1108,
    block_efficiency={1: 1.55, 3: 1.97},
    draft_cost=0.12,
    expected=1.31,
    best_k=3,
    logit_difference=0.02,
    minutes=60.0,
    n_chat_tokens=600_000,
    n_trained_tokens=3_000_000,
    recipe=Recipe(SHAPE),
    measured=1.27,
    measured_low=1.2,
    measured_high=1.34,
)
STEPS = (100, 200, 300)


def command(behaviour: str = "forge") -> tuple[str, ...]:
    """What forge() is to start."""
    return sys.executable, "-P", str(Path(__file__)), behaviour


def say(report: Report) -> None:
    sys.stdout.write(as_line(report) + "\n")
    sys.stdout.flush()


class Parent:
    """What the parent says, line by line; None once it is gone."""

    def __init__(self) -> None:
        self.said: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in sys.stdin:
            self.said.put(line.strip())
        self.said.put(None)


def main() -> int:
    """Play the behaviour; return the exit status."""
    behaviour, request = sys.argv[1], from_argument(sys.argv[2])
    request.folder.joinpath("environment").write_text("\n".join(f"{k}={v}" for k, v in os.environ.items()))
    say(StageBegun(Stage.LOADING, "Loading the target"))
    say({"in_vain": IN_VAIN, "asked": IN_VAIN, "never": NEVER}.get(behaviour, WORTH_IT))
    if request.only_outlook:
        return 0
    if behaviour == "refuse":
        say(Failed("This target is not supported.", "Choose another.", resumable=True))
        return 3
    request.folder.joinpath("plan.json").write_text("{}")
    say(StageBegun(Stage.CHATS, "The target writes chats"))
    if behaviour in {"asked", "never"}:
        wait_for("go on")
    if behaviour in ENDINGS:
        return ENDINGS[behaviour](request)
    print("a library prints this")  # noqa: T201 - what is no report is passed over
    say(ChatsWritten(STEPS[0], STEPS[-1], 120.0, "Hello!"))
    say(StageBegun(Stage.TRAINING, "The draft model learns"))
    for n_done in STEPS:
        say(Trained(n_done, STEPS[-1], 400 / n_done, 75.0))
        say(AcceptanceMeasured(n_done, n_done / 600, 1.9, 400 / n_done))
    part = request.out.with_name(f"{request.out.name}.part")
    shutil.copyfile(request.target, part)
    part.replace(request.out)
    say(Forged(request.out, CARD))
    request.folder.joinpath("done").touch()
    return 0


def wait_for(line: str) -> None:
    """Do nothing until the parent says this."""
    parent = Parent()
    while (said := parent.said.get()) != line:
        if said is None:
            sys.exit(1)


def listen(request: ForgeRequest) -> int:
    """Report what the parent says, until it says stop or is gone; then save."""
    parent = Parent()
    say(Trained(0, STEPS[-1], 4.0, 75.0))
    while (line := parent.said.get()) not in {"stop", None}:
        say(ChatsWritten(STEPS[0], STEPS[-1], 120.0, f"told: {line}"))
    request.folder.joinpath("saved").write_text(str(line))
    return 0


def be_killed(request: ForgeRequest) -> int:
    """End as the system ends what takes too much memory, in the middle of the draft model's file."""
    request.out.with_name(f"{request.out.name}.part").write_bytes(b"GGUF")
    os.kill(os.getpid(), signal.SIGKILL)
    return 1


def crash(_request: ForgeRequest) -> int:
    """End as a fault in native code does."""
    signal.signal(signal.SIGSEGV, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGSEGV)
    return 1


def break_down(_request: ForgeRequest) -> int:
    """End with a traceback."""
    raise ZeroDivisionError("loss is no number")


def fail(_request: ForgeRequest) -> int:
    """End for a reason that a person can mend."""
    say(Failed("The disk is full.", "Free some space.", resumable=True))
    return 1


def be_deaf(_request: ForgeRequest) -> int:
    """Hear nothing, with a child of its own."""
    with subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"]) as child:
        say(ChatsWritten(STEPS[0], STEPS[-1], 120.0, f"child: {child.pid}"))
        signal.pause()
    return 0


def end_early(_request: ForgeRequest) -> int:
    """End as if all were well, without a draft model."""
    return 0


ENDINGS = {
    "listen": listen,
    "killed": be_killed,
    "crash": crash,
    "broken": break_down,
    "fail": fail,
    "deaf": be_deaf,
    "early": end_early,
}

if __name__ == "__main__":
    sys.exit(main())
