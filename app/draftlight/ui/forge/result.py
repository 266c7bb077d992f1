"""The last pages: the draft model with its figures, or why there is none."""

from PySide6.QtCore import QUrl, Signal, Slot
from PySide6.QtGui import QDesktopServices, QGuiApplication
from PySide6.QtWidgets import QFrame, QGridLayout, QLabel, QVBoxLayout, QWidget

from draftlight.errors import UserError
from draftlight.forge.figures import made_of
from draftlight.forge.reports import Forged
from draftlight.ui.forge.curve import ACCEPTANCE, LOSS, Curve
from draftlight.ui.forge.pieces import Page, heading, side_by_side, text
from draftlight.ui.forge.progress import Progress
from draftlight.ui.forge.words import advice, command_in, worth


class ResultPage(Page):
    """The card of a draft model, and what to do with it."""

    use_asked = Signal(object)  # Forged
    another_asked = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        """Start without a draft model."""
        super().__init__(parent)
        self._forged: Forged | None = None
        title = heading(self)
        title.setText("The draft model is made")
        self._worth = text(self)
        self._advice = text(self)
        self._facts = {name: text(self) for name in ("File", "Made of", "At fixed K", "Checked")}
        card = QFrame(self)
        card.setObjectName("card")
        inside = QVBoxLayout(card)
        inside.setContentsMargins(18, 16, 18, 16)
        inside.setSpacing(10)
        font = self._worth.font()
        font.setBold(True)
        self._worth.setFont(font)
        inside.addWidget(self._worth)
        inside.addWidget(self._advice)
        grid = QGridLayout()
        grid.setHorizontalSpacing(16)
        grid.setVerticalSpacing(6)
        grid.setColumnStretch(1, 1)
        for row, (name, value) in enumerate(self._facts.items()):
            label = QLabel(name, card)
            label.setObjectName("dim")
            grid.addWidget(label, row, 0)
            grid.addWidget(value, row, 1)
            value.setAccessibleName(name)
        inside.addLayout(grid)
        self._curves = QWidget(self)
        self.loss, self.acceptance = Curve(LOSS, self), Curve(ACCEPTANCE, self)
        curves = side_by_side(self.loss, self.acceptance)
        curves.setContentsMargins(0, 0, 0, 0)
        self._curves.setLayout(curves)
        self.body.addWidget(title)
        self.body.addWidget(card)
        self.body.addWidget(self._curves, 4)
        self.body.addStretch(1)
        self._use = self.add_button("&Use it now", self._use_it, main=True)
        self.add_button("&Show in folder", self._show_folder)
        self.add_button("&Make another", self.another_asked)
        self.row.addStretch(1)

    def show_result(self, forged: Forged, progress: Progress) -> None:
        """Show the card, and how it was learnt where this run has seen it."""
        self._forged = forged
        expected = None if progress.outlook is None else progress.outlook.expected_acceptance
        self.loss.show_points(progress.losses)
        self.acceptance.show_points(progress.acceptances, expected)
        self._curves.setVisible(bool(progress.losses or progress.acceptances))
        card = forged.card
        self._worth.setText(worth(card))
        self._advice.setText(advice(card))
        rounds = ", ".join(f"{tokens:.2f} at K = {k}" for k, tokens in sorted(card.block_efficiency.items()))
        facts = {
            "File": str(forged.path),
            "Made of": made_of(card),
            "At fixed K": f"Tokens per verify: {rounds}." if rounds else "Not measured.",
            "Checked": f"On {card.n_places:,} places of held-out chats. Its figures in llama.cpp differ from those of "
            f"the training by at most {card.logit_difference:.3g}.",
        }
        for name, value in facts.items():
            self._facts[name].setText(value)

    @Slot()
    def _use_it(self) -> None:
        self.use_asked.emit(self._forged)

    @Slot()
    def _show_folder(self) -> None:
        if self._forged is not None:
            QDesktopServices.openUrl(QUrl.fromLocalFile(str(self._forged.path.parent)))


class FailurePage(Page):
    """What went wrong, what to do, and a way on."""

    again_asked = Signal()
    back_asked = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        """Start without a failure."""
        super().__init__(parent)
        self._title = heading(self)
        box = QFrame(self)
        box.setObjectName("notice")
        self._sentence, self._remedy = text(box), text(box)
        inside = QVBoxLayout(box)
        inside.setContentsMargins(16, 12, 16, 12)
        inside.addWidget(self._sentence)
        inside.addWidget(self._remedy)
        self._kept = text(self)
        self.body.addWidget(self._title)
        self.body.addWidget(box)
        self.body.addWidget(self._kept)
        self.body.addStretch(1)
        self._again = self.add_button("&Resume", self.again_asked, main=True)
        self._copy = self.add_button("&Copy the command", self._copy_command)
        self.add_button("&Back", self.back_asked)
        self.row.addStretch(1)

    def show_failure(self, error: BaseException | None, *, resumable: bool, tuning: bool = False) -> None:
        """Show the sentence and the remedy; a fault of the program's own has no remedy."""
        self._title.setText(f"The draft model was not {'tuned' if tuning else 'made'}")
        if isinstance(error, UserError):
            self._sentence.setText(" ".join((error.sentence, *error.notes)))
            self._remedy.setText(error.remedy)
        else:
            self._sentence.setText(f"A fault in the program: {error}.")
            self._remedy.setText("The log has the details.")
        self._remedy.setVisible(bool(self._remedy.text()))
        self._kept.setText("What was done before is kept: resuming goes on from there." if resumable else "")
        self._again.setText("&Resume" if resumable else "&Try again")
        self._copy.setVisible(bool(command_in(self._remedy.text())))

    @Slot()
    def _copy_command(self) -> None:
        QGuiApplication.clipboard().setText(command_in(self._remedy.text()))
