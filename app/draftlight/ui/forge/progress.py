"""How far a run is: what it has reported so far, folded into what the screen shows. Knows no widget."""

from collections.abc import Mapping

from draftlight.forge.reports import (
    AcceptanceMeasured,
    ChatsWritten,
    Forged,
    Held,
    Outlook,
    Report,
    Stage,
    StageBegun,
    Trained,
    Tuned,
)
from draftlight.ui.forge.words import time_left

MOST_POINTS = 4_000

STAGE_NAMES = {
    Stage.LOADING: "Load the target",
    Stage.OUTLOOK: "Measure what is possible",
    Stage.CHATS: "Let the target write chats",
    Stage.TRAINING: "Train the draft model",
    Stage.MEASURING: "Measure the draft model",
}
TUNING_NAMES = {
    Stage.LOADING: "Load both models",
    Stage.CHATS: "Read your chats",
    Stage.TRAINING: "Learn from them",
    Stage.MEASURING: "Test on newer answers",
}
_DOING = {
    Stage.LOADING: "loading the target",
    Stage.OUTLOOK: "measuring what is possible",
    Stage.CHATS: "the target writes chats",
    Stage.TRAINING: "training",
    Stage.MEASURING: "measuring the draft model",
}
_DOING_TUNING = {
    Stage.LOADING: "loading both models",
    Stage.CHATS: "reading your chats",
    Stage.TRAINING: "learning from them",
    Stage.MEASURING: "testing on newer answers",
}


class Progress:
    """Take reports in their order. Points of curves are (tokens seen, value)."""

    def __init__(self, *, tuning: bool = False) -> None:
        """Start before the first report of a run that makes a draft model, or that tunes one."""
        self.names: Mapping[Stage, str] = TUNING_NAMES if tuning else STAGE_NAMES
        self._doing: Mapping[Stage, str] = _DOING_TUNING if tuning else _DOING
        self.stage: Stage | None = None
        self.sentence = ""
        self.fraction: float | None = None
        self.seconds_left: float | None = None
        self.sample = ""
        self.waiting = False
        self.outlook: Outlook | None = None
        self.forged: Forged | None = None
        self.tuned: Tuned | None = None
        self.losses: list[tuple[int, float]] = []
        self.acceptances: list[tuple[int, float]] = []

    def take(self, report: Report) -> None:
        """Fold one report in."""
        if isinstance(report, StageBegun):
            self.stage, self.sentence = report.stage, report.sentence
            self.fraction = self.seconds_left = None
        elif isinstance(report, Outlook):
            self.outlook = report
        elif isinstance(report, ChatsWritten):
            self._advance(report.n_tokens, report.n_wanted, report.seconds_left)
            self.sample = report.sample or self.sample
        elif isinstance(report, Trained):
            self._advance(report.n_tokens, report.n_wanted, report.seconds_left)
            _append(self.losses, report.n_tokens, report.loss)
        elif isinstance(report, AcceptanceMeasured):
            _append(self.acceptances, report.n_tokens, report.acceptance)
            _append(self.losses, report.n_tokens, report.loss)
        elif isinstance(report, Held):
            self.waiting = report.waiting
        elif isinstance(report, Forged):
            self.forged = report
        elif isinstance(report, Tuned):
            self.tuned = report

    @property
    def doing(self) -> str:
        """What is being done, and how long it still takes, as part of a sentence."""
        doing = "starting" if self.stage is None else self._doing[self.stage]
        return doing if self.seconds_left is None else f"{doing}, {time_left(self.seconds_left)}"

    @property
    def step(self) -> str:
        """The same with how much of this part is done, as a line of its own."""
        doing = "Starting" if self.stage is None else self.names[self.stage]
        done = "" if self.fraction is None else f"{self.fraction:.0%}".replace("%", " %")
        left = "" if self.seconds_left is None else time_left(self.seconds_left)
        figures = ", ".join(filter(None, (done, left)))
        return f"{doing}: {figures}" if figures else doing

    def _advance(self, n: int, n_wanted: int, seconds_left: float) -> None:
        self.fraction = min(1.0, n / n_wanted) if n_wanted > 0 else None
        self.seconds_left = seconds_left


def _append(points: list[tuple[int, float]], n_tokens: int, value: float) -> None:
    """Add a point; a resumed run tells parts again, and of a long run every other point is enough."""
    while points and points[-1][0] >= n_tokens:
        points.pop()
    points.append((n_tokens, value))
    if len(points) > MOST_POINTS:
        del points[1:-1:2]
