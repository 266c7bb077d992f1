"""The last page of a tuning: what it has brought, and what to do with it."""

from PySide6.QtCore import Signal, Slot
from PySide6.QtWidgets import QFrame, QVBoxLayout, QWidget

from draftlight.forge.figures import tuned_sentences
from draftlight.forge.reports import Tuned
from draftlight.ui.forge.curve import ACCEPTANCE, LOSS, Curve
from draftlight.ui.forge.pieces import Page, heading, side_by_side, text
from draftlight.ui.forge.progress import Progress


class TunedPage(Page):
    """Shows acceptance before and after."""

    use_asked = Signal(object)  # Tuned
    back_asked = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        """Start without a result."""
        super().__init__(parent)
        self._tuned: Tuned | None = None
        self._title = heading(self)
        card = QFrame(self)
        card.setObjectName("card")
        inside = QVBoxLayout(card)
        inside.setContentsMargins(18, 16, 18, 16)
        inside.setSpacing(10)
        self._change, self._meaning, self._file = text(card), text(card), text(card, dim=True)
        for part in (self._change, self._meaning, self._file):
            inside.addWidget(part)
        self.loss, self.acceptance = Curve(LOSS, self), Curve(ACCEPTANCE, self)
        self.body.addWidget(self._title)
        self.body.addWidget(card)
        self.body.addLayout(side_by_side(self.loss, self.acceptance), 4)
        self.body.addStretch(1)
        self._use = self.add_button("&Use it now", self._use_it, main=True)
        self.add_button("&Back", self.back_asked)
        self.row.addStretch(1)

    def show_result(self, tuned: Tuned, progress: Progress) -> None:
        """Show the figures, and how it was learnt."""
        self._tuned = tuned
        better = tuned.path is not None
        self._title.setText("The draft model is tuned" if better else "Tuning has brought nothing")
        change, meaning = tuned_sentences(tuned)
        self._change.setText(change)
        self._meaning.setText(meaning)
        self._file.setText(str(tuned.path or ""))
        self._file.setVisible(better)
        self._use.setVisible(better)
        self.loss.show_points(progress.losses)
        self.acceptance.show_points(progress.acceptances)

    @Slot()
    def _use_it(self) -> None:
        self.use_asked.emit(self._tuned)
