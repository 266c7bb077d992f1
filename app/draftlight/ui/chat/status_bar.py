"""The bottom line: what is going on, the figures of the last answer, how full the context is."""

from PySide6.QtCore import QSize, Slot
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QProgressBar, QWidget

from draftlight.chat.figures import NEAR_TIE, equality, speed_up
from draftlight.engine.metrics import SpeculationStats
from draftlight.llama.threads import ThreadState
from draftlight.ui.chat.figures import accepted, efficiency, speed

_MEANINGS = {
    "speed": "Committed tokens a second while decoding; reading the prompt is not counted",
    "accepted": "Accepted tokens over drafted tokens",
    "efficiency": "Block efficiency: committed tokens over calls of the target",
    "equality": f"Near-ties: places where {NEAR_TIE}. Exact: the same text as plain decoding; an audit evaluates "
    "a row of a verify again, alone, and compares",
    "speed_up": "Time without drafting over time with drafting, for the same tokens. Estimated from what plain steps "
    "cost when the models were tried out; only two runs measure it",
}


_DISPENSABLE = ("efficiency", "accepted", "equality", "speed_up")  # the first to go where there is no room
_SPACING = 20


class StatusBar(QFrame):
    """Tells, never asks. In a narrow window it tells less: what it leaves out stands below the answer."""

    _told: tuple[str, ...] = ()  # the class's: Qt may resize a bar whose own attributes Python has already let go

    def __init__(self, parent: QWidget | None = None) -> None:
        """Start with nothing measured."""
        super().__init__(parent)
        self.setObjectName("bar")
        self._state = QLabel("", self)
        self._figures = {name: QLabel("", self) for name in _MEANINGS}
        self._making = QLabel("", self)
        self._threads = QLabel("", self)
        self._gauge_text = QLabel("", self)
        self._gauge = QProgressBar(self)
        self._gauge.setTextVisible(False)
        self._gauge.setFixedWidth(90)
        self._gauge.setAccessibleName("Context used")
        layout = QHBoxLayout(self)
        layout.setContentsMargins(16, 7, 16, 7)
        layout.setSpacing(_SPACING)
        layout.addWidget(self._state, 1)
        for name, label in self._figures.items():
            label.setToolTip(_MEANINGS[name])
            label.setAccessibleDescription(_MEANINGS[name])
            layout.addWidget(label)
        layout.addWidget(self._making)
        layout.addWidget(self._threads)
        layout.addWidget(self._gauge_text)
        layout.addWidget(self._gauge)
        self.show_stats(SpeculationStats())
        self.show_threads()
        self.show_making("")
        self.show_context(0, 0)

    def show_state(self, sentence: str) -> None:
        """Say what is going on."""
        self._state.setText(sentence)
        self._fit()

    def show_stats(self, stats: SpeculationStats, mode: str = "") -> None:
        """Show the figures of an answer made in that mode; before its first round there are none."""
        self._figures["speed"].setText(speed(stats))
        self._figures["accepted"].setText(accepted(stats))
        self._figures["efficiency"].setText(efficiency(stats))
        self._figures["equality"].setText(equality(stats, mode))
        self._figures["speed_up"].setText(speed_up(stats) or "speed-up not measured yet")
        self._told = tuple(name for name, label in self._figures.items() if stats.n_rounds > 0 and label.text())
        self._fit()

    @Slot(str)
    def show_making(self, sentence: str) -> None:
        """Say what else is going on: a draft model that is being made; nothing where the sentence is empty."""
        self._making.setText(sentence)
        self._making.setVisible(bool(sentence))
        self._fit()

    def show_threads(self, state: ThreadState | None = None) -> None:
        """Show that fewer threads compute than could, and why; nothing where all do."""
        is_told = state is not None and bool(state.reason)
        self._threads.setText(f"{state.n_threads} of {state.n_all} threads" if state is not None and is_told else "")
        self._threads.setToolTip(state.reason if state is not None else "")
        self._threads.setAccessibleDescription(self._threads.toolTip())
        self._threads.setVisible(is_told)
        self._fit()

    def show_context(self, used: int, size: int) -> None:
        """Show how many tokens of the context are in use; a size of 0 hides the gauge."""
        self._gauge.setVisible(size > 0)
        self._gauge_text.setVisible(size > 0)
        if size > 0:
            self._gauge.setMaximum(size)
            self._gauge.setValue(min(used, size))
            self._gauge_text.setText(f"context {used:,} of {size:,}")
            self._gauge.setAccessibleDescription(self._gauge_text.text())
        self._fit()

    def minimumSizeHint(self) -> QSize:
        """Never hold the window open: it shows what fits."""
        return QSize(0, super().minimumSizeHint().height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Show what fits."""
        super().resizeEvent(event)
        if self._told:
            self._fit()

    def _fit(self) -> None:
        """Hide figures, the dispensable ones first, until the rest has room."""
        told = set(self._told)
        lasting = (self._state, self._making, self._threads, self._gauge_text, self._gauge)
        always = [widget for widget in lasting if not widget.isHidden()]
        for name in ("", *_DISPENSABLE):
            told.discard(name)
            shown = [*always, *(self._figures[each] for each in told)]
            needed = sum(min(widget.sizeHint().width(), widget.maximumWidth()) + _SPACING for widget in shown)
            if needed + _SPACING <= self.width():
                break
        for name, label in self._figures.items():
            label.setVisible(name in told)

    @property
    def text(self) -> str:
        """Everything there is to tell, as one line."""
        labels = (*self._figures.values(), self._making, self._threads)
        return " · ".join([self._state.text(), *filter(None, (label.text() for label in labels))])
