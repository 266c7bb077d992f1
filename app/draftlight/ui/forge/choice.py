"""The first page: for which target, in how much time, of which shape; and a run that was not finished."""

from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtGui import QGuiApplication, QStandardItem
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QToolButton, QVBoxLayout, QWidget

from draftlight.errors import UserError
from draftlight.forge.conditions import require_family, require_packages
from draftlight.library.scanner import ModelFile
from draftlight.ui.forge.own_chats import OwnChats
from draftlight.ui.forge.pieces import Page, heading, text
from draftlight.ui.forge.run import Order
from draftlight.ui.forge.words import command_in, duration
from draftlight.ui.lists import VALUE, ChoiceList, ModelList, file_size, model_item, model_name

MINUTES = (15, 30, 60, 120, 180, 240, 360, 480)
USUAL_MINUTES = 60
SIZES = {
    "auto": ("Automatic", "Whichever shape promises the larger speed-up here, by what is measured first"),
    "narrow": ("Narrow", "New layers of a smaller width: cheap to run, and accepted less often"),
    "pruned": ("Pruned", "Some of the target's own layers: dearer to run, and accepted more often"),
}
_WHAT = (
    "A draft model proposes tokens that the target then checks. Here one is made for a target that has none: the "
    "target writes chats with itself, and a small model made from it learns to foretell them. It all happens on this "
    "computer, without your chats and without the internet."
)
_INSTALLED = "This needs PyTorch and a few packages around it, which nothing else here needs. They are installed."


class ChoicePage(Page):
    """Asks for an Order."""

    look_asked = Signal(object)  # Order
    resume_asked = Signal(object)  # Order
    over_asked = Signal(object)  # Order
    tune_asked = Signal(object)  # Order

    def __init__(self, parent: QWidget | None = None) -> None:
        """Start without models."""
        super().__init__(parent)
        self._targets = ModelList("Target", "The model that the draft model will draft for", self)
        self._time = ChoiceList("Time", "How long the whole run may take; more time, more drafts accepted", self)
        self._more = QToolButton(self)
        self._shapes = QWidget(self)
        self._size = ChoiceList("Shape", "What the draft model is made of", self._shapes)
        self._command = ""
        self._kept, self._missing = QFrame(self), QFrame(self)
        self._begun = text(self._kept)
        self._installed, self._remedy = text(self, _INSTALLED, dim=True), text(self._missing)
        self._arrange()
        self._begin = self.add_button("&Measure what is possible", self._look, main=True)
        self.row.addStretch(1)
        self.own_chats = OwnChats(self)
        self.own_chats.tune_asked.connect(self.tune_asked)
        self.body.insertWidget(self.body.count() - 1, self.own_chats)
        self.first = self._targets
        self._targets.currentIndexChanged.connect(self.look_again)
        self.show_models((), None)

    @property
    def order(self) -> Order | None:
        """What is chosen; None without a target."""
        target = str(self._targets.currentData(VALUE) or "")
        if not target:
            return None
        return Order(Path(target), float(self._time.currentData(VALUE)), str(self._size.currentData(VALUE)))

    def show_models(self, models: Sequence[ModelFile], chosen: Path | None) -> None:
        """Offer the models that write text; `chosen` stands first, and is chosen."""
        fit = [model for model in models if not model.problem and model.kind.writes_text]
        fit.sort(key=lambda model: model.path != chosen)
        items = [_target_item(model) for model in fit]
        if chosen is not None and all(model.path != chosen for model in fit):
            items.insert(0, model_item(model_name(chosen), str(chosen), str(chosen)))
        if not items:
            items = [model_item("No model found", "", "Open a GGUF file from the Models menu", enabled=False)]
        self._targets.show_items(items, next((str(item.data(VALUE)) for item in items if item.isEnabled()), ""))
        self.look_again()

    @Slot()
    def look_again(self) -> None:
        """Look whether a run of the chosen target was left unfinished."""
        order = self.order
        begun = None if order is None else order.begun
        if begun is not None:
            wishes = f"{duration(begun.minutes)}, {SIZES[begun.size][0].lower()} shape"
            wishes = wishes if begun.recipe is None else begun.recipe.name
            self._begun.setText(f"A run for this target ({wishes}) was not finished. What it has done is kept.")
        self._kept.setVisible(begun is not None)
        self._begin.setVisible(begun is None)
        self._begin.setEnabled(order is not None)
        self._show_packages()
        self.own_chats.look_again()

    def _arrange(self) -> None:
        title = heading(self)
        title.setText("Make a draft model")
        for minutes in MINUTES:
            self._time.add(duration(minutes), minutes)
        self._time.setCurrentIndex(MINUTES.index(USUAL_MINUTES))
        for size, (name, meaning) in SIZES.items():
            self._size.add(name, size, meaning)
        self._more.setText("M&ore")
        self._more.setCheckable(True)
        self._more.setArrowType(Qt.ArrowType.RightArrow)
        self._more.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        self._more.toggled.connect(self._show_more)
        self.body.addWidget(title)
        self.body.addWidget(text(self, _WHAT))
        self.body.addWidget(_field("&Target", self._targets, self))
        self.body.addWidget(_field("T&ime", self._time, self))
        self.body.addWidget(self._more, 0, Qt.AlignmentFlag.AlignLeft)
        below = QVBoxLayout(self._shapes)
        below.setContentsMargins(0, 0, 0, 0)
        below.addWidget(_field("S&hape", self._size, self._shapes))
        self._shapes.hide()
        self.body.addWidget(self._shapes)
        self._fill_kept()
        self.body.addWidget(self._kept)
        self._fill_missing()
        self.body.addWidget(self._missing)
        self.body.addWidget(self._installed)
        self.body.addStretch(1)

    def _fill_kept(self) -> None:
        """Fill the box about an unfinished run."""
        self._kept.setObjectName("notice")
        resume, over = QPushButton("&Resume", self._kept), QPushButton("&Start over …", self._kept)
        resume.setObjectName("main")
        resume.clicked.connect(self._resume)
        over.clicked.connect(self._start_over)
        row = QHBoxLayout(self._kept)
        row.setContentsMargins(14, 10, 10, 10)
        row.addWidget(self._begun, 1)
        row.addWidget(resume)
        row.addWidget(over)

    def _fill_missing(self) -> None:
        """Fill the box about packages that are not there."""
        self._missing.setObjectName("notice")
        copy = QPushButton("&Copy the command", self._missing)
        copy.clicked.connect(self._copy_command)
        row = QHBoxLayout(self._missing)
        row.setContentsMargins(14, 10, 10, 10)
        row.addWidget(self._remedy, 1)
        row.addWidget(copy, 0, Qt.AlignmentFlag.AlignTop)

    def _show_packages(self) -> None:
        """Say whether the packages are there, and else the command that adds them."""
        try:
            require_packages()
        except UserError as error:
            self._remedy.setText(str(error))
            self._command = command_in(error.remedy)
            missing = True
        else:
            missing = False
        self._missing.setVisible(missing)
        self._installed.setVisible(not missing)

    @Slot()
    def _copy_command(self) -> None:
        QGuiApplication.clipboard().setText(self._command)

    @Slot(bool)
    def _show_more(self, more: bool) -> None:  # noqa: FBT001 - Qt's signal
        self._shapes.setVisible(more)
        self._more.setArrowType(Qt.ArrowType.DownArrow if more else Qt.ArrowType.RightArrow)

    @Slot()
    def _look(self) -> None:
        self.look_asked.emit(self.order)

    @Slot()
    def _resume(self) -> None:
        self.resume_asked.emit(self.order)

    @Slot()
    def _start_over(self) -> None:
        self.over_asked.emit(self.order)


def _target_item(model: ModelFile) -> QStandardItem:
    """Return an entry; a target that nothing can be learned from is greyed, with the reason."""
    reason = ""
    try:
        if model.header is not None:
            require_family(model.header)
    except UserError as error:
        reason = error.sentence
    path = str(model.path)
    more = file_size(model.size)
    return model_item(model_name(model.path), path, reason or path, more=more, reason=reason, enabled=not reason)


def _field(name: str, field: QWidget, parent: QWidget) -> QWidget:
    """Return a field with its name above."""
    whole = QWidget(parent)
    label = QLabel(name, whole)
    label.setObjectName("dim")
    label.setBuddy(field)
    column = QVBoxLayout(whole)
    column.setContentsMargins(0, 0, 0, 0)
    column.setSpacing(4)
    column.addWidget(label)
    column.addWidget(field)
    return whole
