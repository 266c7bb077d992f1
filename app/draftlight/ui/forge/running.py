"""The third page: where the run is, its two curves, and what the target writes."""

from collections.abc import Mapping

from PySide6.QtCore import Signal, Slot
from PySide6.QtWidgets import QGridLayout, QHBoxLayout, QLabel, QPlainTextEdit, QProgressBar, QVBoxLayout, QWidget

from draftlight.forge.reports import Stage
from draftlight.ui.forge.curve import ACCEPTANCE, LOSS, Curve
from draftlight.ui.forge.pieces import Page, heading, side_by_side, text
from draftlight.ui.forge.progress import STAGE_NAMES, Progress
from draftlight.ui.forge.run import Order
from draftlight.ui.lists import model_name

_STEPS = 1000
_SAMPLE_LINES = 8
_DONE, _NOW, _LATER = ("\u2713", "done"), ("\u25b6", "now"), ("\u25cb", "later")


class StageList(QWidget):
    """The parts of a run; a sign and its word say which are done and which one is on."""

    def __init__(self, parent: QWidget | None = None) -> None:
        """Start before the first part."""
        super().__init__(parent)
        self.setAccessibleName("Parts of the run")
        grid = QGridLayout(self)
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setHorizontalSpacing(10)
        grid.setVerticalSpacing(5)
        self._rows: dict[Stage, tuple[QLabel, QLabel, QLabel]] = {}
        for row, (stage, name) in enumerate(STAGE_NAMES.items()):
            labels = (QLabel(self), QLabel(name, self), QLabel(self))
            labels[2].setObjectName("dim")
            for column, label in enumerate(labels):
                grid.addWidget(label, row, column)
            self._rows[stage] = labels
        grid.setRowStretch(len(self._rows), 1)
        self.show_stage(None)

    def show_stage(self, current: Stage | None, names: Mapping[Stage, str] = STAGE_NAMES) -> None:
        """Show which part is on; a part without a name is none of this run's."""
        stages = list(self._rows)
        place = -1 if current is None else stages.index(current)
        for row, (stage, (sign, name, word)) in enumerate(self._rows.items()):
            name.setText(names.get(stage, ""))
            for label in (sign, name, word):
                label.setVisible(stage in names)
            shown = _DONE if row < place else _NOW if row == place else _LATER
            sign.setText(shown[0])
            word.setText(shown[1])
            font = name.font()
            font.setBold(row == place)
            name.setFont(font)
        self.setAccessibleDescription(
            "; ".join(f"{name.text()}: {word.text()}" for _, name, word in self._rows.values() if name.text())
        )


class RunningPage(Page):
    """Shows a run's progress, and asks for a pause or the end."""

    pause_asked = Signal()
    go_on_asked = Signal()
    stop_asked = Signal()
    close_asked = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        """Start before the first report."""
        super().__init__(parent)
        self._paused = False
        self._title = heading(self)
        self._sentence = text(self)
        self._stages = StageList(self)
        self._step = text(self)
        self._bar = QProgressBar(self)
        self._bar.setTextVisible(False)
        self._bar.setAccessibleName("Progress of this part")
        self._sample_label = QLabel("What the target &writes", self)
        self._sample = QPlainTextEdit(self)
        self._sample.setReadOnly(True)
        self._sample.setTabChangesFocus(True)
        self._sample.setAccessibleName("What the target writes")
        self._sample.setPlaceholderText("What the target writes will stand here.")
        self.loss, self.acceptance = Curve(LOSS, self), Curve(ACCEPTANCE, self)
        self._arrange()
        self._pause = self.add_button("&Pause", self._pause_or_go_on, main=True)
        self._stop = self.add_button("&Cancel …", self.stop_asked)
        self.row.addStretch(1)
        self.add_button("C&lose this window; the run goes on", self.close_asked)

    def show_run(self, order: Order, progress: Progress, *, paused: bool, stopping: bool) -> None:
        """Show what a run has reported so far, and whether it is held up."""
        self._paused = paused
        self._sample.setVisible(order.tune is None)
        self._sample_label.setVisible(order.tune is None)
        if order.tune is None:
            title, ending = f"Making a draft model for {model_name(order.target)}", "Saving what is done …"
        else:
            title, ending = f"Tuning {model_name(order.tune)} on your chats", "Stopping …"
        pausing = "Paused." if progress.waiting else "It pauses once the step is done that it is in …"
        held = ending if stopping else pausing if paused else ""
        self._title.setText(title)
        self._sentence.setText(held or progress.sentence or "Starting …")
        self._pause.setText("&Go on" if paused else "&Pause")
        self._pause.setEnabled(not stopping)
        self._stop.setEnabled(not stopping)
        self._stages.show_stage(progress.stage, progress.names)
        self._step.setText(progress.step)
        self._show_fraction(progress.fraction, moving=not (paused and progress.waiting))
        self._bar.setAccessibleDescription(progress.step)
        if self._sample.toPlainText() != progress.sample:
            self._sample.setPlainText(progress.sample)
        expected = None if progress.outlook is None else progress.outlook.expected_acceptance
        self.loss.show_points(progress.losses)
        self.acceptance.show_points(progress.acceptances, expected)

    def _show_fraction(self, fraction: float | None, *, moving: bool) -> None:
        """Show how much of a part is done; where that is not known, whether something is being done at all."""
        if fraction is None:
            self._bar.setRange(0, 0 if moving else 1)
        else:
            self._bar.setRange(0, _STEPS)
            self._bar.setValue(round(_STEPS * fraction))

    def _arrange(self) -> None:
        self.body.addWidget(self._title)
        self.body.addWidget(self._sentence)
        top = QHBoxLayout()
        top.setSpacing(24)
        top.addWidget(self._stages)
        column = QVBoxLayout()
        column.setSpacing(4)
        self._sample_label.setObjectName("dim")
        self._sample_label.setBuddy(self._sample)
        column.addWidget(self._sample_label)
        column.addWidget(self._sample)
        column.addStretch(1)
        top.addLayout(column, 1)
        self.body.addLayout(top)
        self.body.addWidget(self._step)
        self.body.addWidget(self._bar)
        self.body.addLayout(side_by_side(self.loss, self.acceptance), 1)
        self._sample.setFixedHeight(_SAMPLE_LINES * self.fontMetrics().height())

    @Slot()
    def _pause_or_go_on(self) -> None:
        (self.go_on_asked if self._paused else self.pause_asked).emit()
