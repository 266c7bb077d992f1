"""The first page's part about the person's own chats: may they be learned from, tune the draft model, undo that."""

from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import Signal, Slot
from PySide6.QtWidgets import QCheckBox, QFrame, QHBoxLayout, QPushButton, QVBoxLayout, QWidget

from draftlight.forge.tuned_files import tuned, untuned
from draftlight.settings import PairSettings
from draftlight.ui.forge.pieces import text
from draftlight.ui.forge.run import Order
from draftlight.ui.lists import model_name

_WHAT = (
    "Only while you tune a draft model, the chats on this computer are read: what the target answered, and what stood "
    "before it. Nothing leaves the computer, and nothing is kept but the tuned draft model, which a reset deletes."
)


class OwnChats(QFrame):
    """Asks for consent first. Out of sight where there is no draft model to tune and nothing was allowed."""

    allowed = Signal(bool)
    tune_asked = Signal(object)  # Order
    reset_asked = Signal(object)  # PairSettings with the untuned draft model

    def __init__(self, parent: QWidget | None = None) -> None:
        """Start without a pair and without consent."""
        super().__init__(parent)
        self.setObjectName("notice")
        self._pair: PairSettings | None = None
        self._origin: Path | None = None  # the pair's draft model as it was before it was tuned
        self._consent = QCheckBox("&Learn from my chats", self)
        self._words = text(self)
        self._tune, self._reset = QPushButton("T&une it", self), QPushButton("R&eset", self)
        self._consent.toggled.connect(self._take_consent)
        self._tune.clicked.connect(self._ask_to_tune)
        self._reset.clicked.connect(self._ask_to_reset)
        row = QHBoxLayout()
        row.addWidget(self._words, 1)
        row.addWidget(self._tune)
        row.addWidget(self._reset)
        column = QVBoxLayout(self)
        column.setContentsMargins(14, 10, 10, 10)
        column.addWidget(self._consent)
        column.addWidget(text(self, _WHAT, dim=True))
        column.addLayout(row)
        self.show_pair(None, allowed=False)

    def show_pair(self, pair: PairSettings | None, *, allowed: bool) -> None:
        """Offer to tune the draft model of this pair."""
        self._pair = pair
        self._origin = None if pair is None or pair.draft is None else untuned(pair.draft)
        self._consent.blockSignals(True)
        self._consent.setChecked(allowed)
        self._consent.blockSignals(False)
        self.look_again()

    def look_again(self) -> None:
        """Look whether there is a tuned draft model, and offer what can be done."""
        pair, origin, allowed = self._pair, self._origin, self._consent.isChecked()
        self.setVisible(allowed or origin is not None)
        self._tune.setEnabled(allowed and origin is not None)
        if pair is None or origin is None:
            self._words.setText("No draft model is loaded that could be tuned.")
            self._reset.hide()
            return
        is_tuned = tuned(origin, pair.target) is not None
        answers = f"what {model_name(pair.target)} answered you"
        self._words.setText(f"Tune the draft model {model_name(origin)} on {answers}. It is kept if it gets better.")
        self._tune.setText("T&une it anew" if is_tuned else "T&une it")
        self._reset.setVisible(is_tuned)

    @Slot(bool)
    def _take_consent(self, allowed: bool) -> None:  # noqa: FBT001 - Qt's signal
        self.look_again()
        self.allowed.emit(allowed)

    @Slot()
    def _ask_to_tune(self) -> None:
        if self._pair is not None and self._origin is not None:
            self.tune_asked.emit(Order(self._pair.target, tune=self._origin))

    @Slot()
    def _ask_to_reset(self) -> None:
        if self._pair is not None and self._origin is not None:
            self.reset_asked.emit(replace(self._pair, draft=self._origin))
