"""The bottom line: what is going on, the figures of the last answer, how full the context is."""

from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QProgressBar, QWidget

from draftlight.chat.figures import NEAR_TIE, equality, speed_up
from draftlight.engine.metrics import SpeculationStats
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


class StatusBar(QFrame):
    """Tells, never asks."""

    def __init__(self, parent: QWidget | None = None) -> None:
        """Start with nothing measured."""
        super().__init__(parent)
        self.setObjectName("bar")
        self._state = QLabel("", self)
        self._figures = {name: QLabel("", self) for name in _MEANINGS}
        self._gauge_text = QLabel("", self)
        self._gauge = QProgressBar(self)
        self._gauge.setTextVisible(False)
        self._gauge.setFixedWidth(90)
        self._gauge.setAccessibleName("Context used")
        layout = QHBoxLayout(self)
        layout.setContentsMargins(16, 7, 16, 7)
        layout.setSpacing(20)
        layout.addWidget(self._state, 1)
        for name, label in self._figures.items():
            label.setToolTip(_MEANINGS[name])
            label.setAccessibleDescription(_MEANINGS[name])
            layout.addWidget(label)
        layout.addWidget(self._gauge_text)
        layout.addWidget(self._gauge)
        self.show_stats(SpeculationStats())
        self.show_context(0, 0)

    def show_state(self, sentence: str) -> None:
        """Say what is going on."""
        self._state.setText(sentence)

    def show_stats(self, stats: SpeculationStats, mode: str = "") -> None:
        """Show the figures of an answer made in that mode; before its first round there are none."""
        self._figures["speed"].setText(speed(stats))
        self._figures["accepted"].setText(accepted(stats))
        self._figures["efficiency"].setText(efficiency(stats))
        self._figures["equality"].setText(equality(stats, mode))
        self._figures["speed_up"].setText(speed_up(stats) or "speed-up not measured yet")
        for label in self._figures.values():
            label.setVisible(stats.n_rounds > 0 and bool(label.text()))

    def show_context(self, used: int, size: int) -> None:
        """Show how many tokens of the context are in use; a size of 0 hides the gauge."""
        self._gauge.setVisible(size > 0)
        self._gauge_text.setVisible(size > 0)
        if size > 0:
            self._gauge.setMaximum(size)
            self._gauge.setValue(min(used, size))
            self._gauge_text.setText(f"context {used:,} of {size:,}")
            self._gauge.setAccessibleDescription(self._gauge_text.text())

    @property
    def text(self) -> str:
        """Everything that is shown, as one line."""
        return " · ".join([self._state.text(), *filter(None, (label.text() for label in self._figures.values()))])
