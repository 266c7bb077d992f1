"""The second page: what a draft model could bring here, before any time is spent on it."""

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QProgressBar, QWidget

from draftlight.forge.figures import is_worth_it, outlook_sentences
from draftlight.forge.reports import Outlook
from draftlight.ui.forge.pieces import Page, heading, text
from draftlight.ui.forge.progress import Progress
from draftlight.ui.forge.run import Order
from draftlight.ui.forge.staircase import Staircase
from draftlight.ui.forge.words import duration, judgement
from draftlight.ui.lists import model_name

_READING = "Where the line is above the bar, a round brings more than it costs: drafting pays."


class OutlookPage(Page):
    """While it is measured it says so; then it judges, and lets the person decide."""

    make_asked = Signal()
    back_asked = Signal()
    stop_asked = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        """Start before the measurement."""
        super().__init__(parent)
        self._title = heading(self)
        self._reason = text(self)
        self._busy = QProgressBar(self)
        self._busy.setRange(0, 0)
        self._busy.setTextVisible(False)
        self._busy.setAccessibleName("Measuring what is possible")
        self.picture = Staircase(self)
        self._facts = text(self, dim=True)
        for widget in (self._title, self._reason, self._busy):
            self.body.addWidget(widget)
        self.body.addWidget(self.picture, 1)
        self.body.addWidget(self._facts)
        self.body.addStretch(0)
        self._make = self.add_button("&Make the draft model", self.make_asked, main=True)
        self._back = self.add_button("&Back", self.back_asked)
        self._cancel = self.add_button("&Cancel", self.stop_asked)
        self.row.addStretch(1)

    def show_looking(self, order: Order, progress: Progress, *, stopping: bool) -> None:
        """Say that it is being measured."""
        self._title.setText(f"What a draft model could bring to {model_name(order.target)}")
        self._reason.setText("Stopping …" if stopping else progress.sentence or "Starting …")
        self._cancel.setEnabled(not stopping)
        self._switch(measured=False)

    def show_outlook(self, order: Order, outlook: Outlook) -> None:
        """Say what was measured and what follows from it."""
        *facts, conclusion = outlook_sentences(outlook)
        worth_it = is_worth_it(outlook)
        self._title.setText(judgement(outlook))
        self._reason.setText(conclusion)
        self.picture.show_outlook(outlook)
        time = f"Making it takes about {duration(order.minutes)}. You can go on chatting meanwhile, more slowly."
        self._facts.setText("\n".join((_READING, *facts, time)))
        self._make.setText("&Make the draft model" if worth_it else "&Make it anyway, to learn from")
        self._switch(measured=True)
        self._make.setFocus(Qt.FocusReason.OtherFocusReason)

    def _switch(self, *, measured: bool) -> None:
        shown: tuple[QWidget, ...] = (self.picture, self._facts, self._make, self._back)
        hidden: tuple[QWidget, ...] = (self._busy, self._cancel)
        for widget in (*shown, *hidden):
            widget.setVisible(measured == (widget in shown))
