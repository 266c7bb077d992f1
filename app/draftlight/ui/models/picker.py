"""The bar above the chat: which models, how they draft, how tokens are drawn. Files are looked at in a job."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtGui import QStandardItem
from PySide6.QtWidgets import (
    QCheckBox,
    QDoubleSpinBox,
    QFrame,
    QHBoxLayout,
    QLabel,
    QSpinBox,
    QVBoxLayout,
    QWidget,
)

from draftlight.engine.decoding import Mode
from draftlight.library.scanner import ModelFile
from draftlight.settings import (
    MAX_DRAFT_LENGTH,
    NGRAM,
    NO_DRAFT,
    AskedMode,
    DraftLength,
    Highlight,
    PairSettings,
    Settings,
)
from draftlight.ui.jobs import Job, JobThread, Work
from draftlight.ui.lists import VALUE, ChoiceList, ModelList, file_size, model_item, model_name
from draftlight.ui.models.listing import DraftsChecked, ListModels, ModelsFound, check_drafts, find_models

HIGHLIGHT_NAMES = {
    Highlight.ALL: "All drafts",
    Highlight.ACCEPTED: "Accepted only",
    Highlight.OFF: "Off",
}
_AUTO_LENGTH = (
    "Each round drafts as many tokens as are worth their time by the costs measured on this computer, none included; "
    "the draft model and n-grams take turns"
)
_FIXED_LENGTH = "Always this many tokens, to watch: from the draft model where there is one, else from n-grams"
_MODES: dict[AskedMode, tuple[str, str]] = {
    "auto": ("Auto", "Exact where enough verify widths are exact on this computer, else fast"),
    Mode.EXACT: ("Exact", "Only verifies whose figures have the same bits as plain decoding: the same text, always"),
    Mode.FAST: ("Fast", "Any verify: the same text up to near-ties, which are counted below each answer"),
}
_LARGEST_SPIN = 2**31 - 1
_WITH_NGRAMS = "Under Auto it drafts together with n-grams, at a fixed length alone."
_FIELD_HEIGHT = 28
_MAKE = "make"  # in place of a draft model's path


class ModelPicker(QFrame):
    """Shows the choices in force and reports new ones; loading is for whoever listens."""

    pair_chosen = Signal(object)  # PairSettings
    options_changed = Signal()
    draft_length_chosen = Signal()
    mode_chosen = Signal()
    models_found = Signal(object)  # the model files, a sequence
    draft_wanted = Signal()  # a draft model is to be made for the target that is shown
    failed = Signal(object)  # the exception that ended the look at the files

    def __init__(
        self, settings: Settings, files: JobThread, list_models: ListModels, parent: QWidget | None = None
    ) -> None:
        """Show the settings; `files` runs the look at the disk."""
        super().__init__(parent)
        self.setObjectName("bar")
        self._files = files
        self._list_models = list_models
        self._pair: PairSettings | None = None  # as shown
        self._asked: PairSettings | None = None  # as wanted: how a next choice is to be loaded
        self._same_again = True  # choosing what is shown is a choice, too
        self._models: tuple[ModelFile, ...] = ()
        self._checked: DraftsChecked | None = None
        self._checking: Job | None = None
        self._targets = ModelList("Target", "The target model: its answer is what you get, whatever drafts for it")
        self._drafts = ModelList("Draft", "Who proposes tokens for the target to verify")
        self._length = ChoiceList("Draft length", "How many tokens are drafted in each round: K")
        self._mode = ChoiceList("Mode", "How strictly the text must equal plain decoding's")
        self._temperature = QDoubleSpinBox(self)
        self._seed = QSpinBox(self)
        self._fresh = QCheckBox("new", self)
        self._highlight = ChoiceList("Highlight", "Which tokens are marked in the text (Ctrl+G)")
        self._fill_fixed(settings)
        self._arrange()
        self._targets.activated.connect(self._choose)
        self._drafts.activated.connect(self._choose)
        self._length.activated.connect(self.draft_length_chosen)
        self._mode.activated.connect(self.mode_chosen)
        self._highlight.activated.connect(self.options_changed)
        self._temperature.valueChanged.connect(self.options_changed)
        self._seed.valueChanged.connect(self.options_changed)
        self._fresh.toggled.connect(self._take_fresh)

    @property
    def draft_length(self) -> DraftLength:
        """K, 0 drafts nothing; or "auto"."""
        length: DraftLength = self._length.currentData(VALUE)
        return length

    @property
    def mode(self) -> AskedMode:
        """How strictly the text must equal plain decoding's."""
        mode = str(self._mode.currentData(VALUE))
        return "auto" if mode == "auto" else Mode(mode)

    @property
    def temperature(self) -> float:
        """How freely the target draws; 0 is greedy."""
        return self._temperature.value()

    @property
    def seed(self) -> int | None:
        """The seed of the next answer, None for a new one each time."""
        return None if self._fresh.isChecked() else self._seed.value()

    @property
    def highlight(self) -> Highlight:
        """Which tokens are marked."""
        return Highlight(self._highlight.currentData(VALUE))

    @property
    def models(self) -> Sequence[ModelFile]:
        """What the last look at the disk found."""
        return self._models

    @property
    def has_pair(self) -> bool:
        """Whether a pair was chosen; loading it may have failed."""
        return self._pair is not None

    @Slot()
    def look_for_models(self) -> None:
        """Look at the disk again, in the background."""
        self._run(find_models(self._list_models))

    def show_pair(self, pair: PairSettings, asked: PairSettings | None = None) -> None:
        """Show which pair is in force, without choosing it; `asked` is how it was wanted where it works otherwise."""
        changed = self._pair is None or pair.target != self._pair.target
        self._pair, self._asked, self._same_again = pair, asked or pair, False
        if changed:
            self._checked = None
        self._refill()
        if changed:
            self._check()

    def show_draft_length(self, length: DraftLength) -> None:
        """Show a draft length, without choosing it."""
        self._length.setCurrentIndex(self._length.findData(length))

    @Slot(object, object)
    def choose(self, target: Path, draft: Path) -> None:
        """Choose this pair, as if by the lists."""
        self.pair_chosen.emit(replace(self._asked or PairSettings(target), target=target, draft=draft, ngram=True))

    @Slot()
    def let_choose_again(self) -> None:
        """Take the choice of what is shown for a new one: it is not loaded, or no longer sound."""
        self._same_again = True

    @Slot()
    def next_highlight(self) -> None:
        """Go on to the next highlight mode."""
        self._highlight.setCurrentIndex((self._highlight.currentIndex() + 1) % self._highlight.count())
        self.options_changed.emit()

    def focus_target(self) -> None:
        """Put the keyboard on the target's list."""
        self._targets.setFocus(Qt.FocusReason.ShortcutFocusReason)
        self._targets.showPopup()

    def _fill_fixed(self, settings: Settings) -> None:
        self._length.add("Auto", "auto", _AUTO_LENGTH)
        self._length.add("Off", 0, "Nothing is drafted: plain decoding")
        for length in range(1, MAX_DRAFT_LENGTH + 1):
            self._length.add(f"Show {length}", length, _FIXED_LENGTH)
        self.show_draft_length("auto" if settings.draft_length is None else settings.draft_length)
        for mode, (name, meaning) in _MODES.items():
            self._mode.add(name, mode, meaning)
        self._mode.setCurrentIndex(list(_MODES).index(settings.mode))
        for highlight, label in HIGHLIGHT_NAMES.items():
            self._highlight.add(label, highlight)
        self._highlight.setCurrentIndex(self._highlight.findData(settings.highlight))
        self._temperature.setRange(0.0, 5.0)
        self._temperature.setSingleStep(0.1)
        self._temperature.setDecimals(2)
        self._temperature.setValue(settings.sampling.temperature)
        self._temperature.setToolTip("0 always takes the likeliest token")
        self._seed.setRange(0, _LARGEST_SPIN)
        self._seed.setToolTip("The same seed gives the same answer to the same question")
        self._seed.setEnabled(False)
        self._fresh.setChecked(True)
        self._fresh.setAccessibleName("New seed each time")
        self._fresh.setToolTip("A new seed for each answer")
        self._refill()

    def _arrange(self) -> None:
        row = QHBoxLayout(self)
        row.setContentsMargins(16, 8, 16, 10)
        row.setSpacing(10)
        seed = QWidget(self)
        inside = QHBoxLayout(seed)
        inside.setContentsMargins(0, 0, 0, 0)
        inside.addWidget(self._seed)
        inside.addWidget(self._fresh)
        fields = (
            ("&Target", self._targets, self._targets, 3),
            ("&Draft", self._drafts, self._drafts, 3),
            ("Draft &length", self._length, self._length, 0),
            ("M&ode", self._mode, self._mode, 0),
            ("Te&mperature", self._temperature, self._temperature, 0),
            ("&Seed", seed, self._seed, 0),
            ("&Highlight", self._highlight, self._highlight, 0),
        )
        for text, shown, buddy, stretch in fields:
            label = QLabel(text, self)
            label.setObjectName("dim")
            label.setBuddy(buddy)
            buddy.setAccessibleName(text.replace("&", ""))
            buddy.setMinimumHeight(_FIELD_HEIGHT)
            column = QVBoxLayout()
            column.setSpacing(4)
            column.addWidget(label)
            column.addWidget(shown)
            row.addLayout(column, stretch)

    def _refill(self) -> None:
        """Write both lists anew from what is known."""
        targets = [self._target_item(model) for model in self._models]
        known = {model.path for model in self._models}
        if self._pair is not None and self._pair.target not in known:
            targets.insert(0, model_item(model_name(self._pair.target), str(self._pair.target), str(self._pair.target)))
        if not targets:
            targets = [model_item("No model found", "", "Open a GGUF file from the Models menu", enabled=False)]
        self._targets.show_items(targets, "" if self._pair is None else str(self._pair.target))
        self._drafts.show_items(self._draft_items(known), self._chosen_draft())
        self._drafts.setEnabled(self._pair is not None)

    def _target_item(self, model: ModelFile) -> QStandardItem:
        reason = model.why_not_chat
        path = str(model.path)
        more = file_size(model.size)
        return model_item(model_name(model.path), path, reason or path, more=more, reason=reason, enabled=not reason)

    def _draft_items(self, known: set[Path]) -> list[QStandardItem]:
        checked = self._checked
        impossible = checked.no_draft if checked is not None else ""
        items = [
            model_item("None", NO_DRAFT, "Plain decoding: the target alone, one token a call"),
            model_item(
                "N-gram, from the chat itself",
                NGRAM,
                "Continues what was said before: costs nothing, good at repeats",
                reason=impossible,
                enabled=not impossible,
            ),
        ]
        for model in self._models:
            verdict = checked.verdicts.get(model.path) if checked is not None else None
            reason = impossible or " ".join(verdict.reasons if verdict is not None else ())
            usable = not reason and verdict is not None and verdict.ok
            tip = reason or " ".join((*(verdict.warnings if verdict else ()), _WITH_NGRAMS, str(model.path)))
            more = file_size(model.size) + (" with n-grams" if usable else "")
            name, path = model_name(model.path), str(model.path)
            items.append(model_item(name, path, tip, more=more, reason=reason, enabled=usable))
        draft = self._pair.draft if self._pair is not None else None
        if draft is not None and draft not in known:
            items.append(model_item(model_name(draft), str(draft), str(draft)))
        if self._lacks_a_draft():
            items.append(model_item("Make a draft model for it …", _MAKE, "Takes an hour or so, on this computer"))
        return items

    def _lacks_a_draft(self) -> bool:
        """Tell whether the target is known to have no draft model, that is, no smaller model that fits."""
        checked = self._checked
        if checked is None or checked.no_draft:
            return False
        sizes = {model.path: model.size for model in self._models}
        largest = sizes.get(checked.target, 0)
        return not any(verdict.ok and sizes[path] < largest for path, verdict in checked.verdicts.items())

    def _chosen_draft(self) -> str:
        if self._pair is None:
            return NO_DRAFT
        if self._pair.draft is not None:
            return str(self._pair.draft)
        return NGRAM if self._pair.ngram else NO_DRAFT

    def _run(self, work: Work) -> Job:
        job = Job(work)
        job.reported.connect(self._on_reported)
        job.failed.connect(self.failed)
        self._files.start(job)
        return job

    def _check(self) -> None:
        if self._checking is not None:
            self._checking.cancel()
        self._checking = None
        if self._pair is not None and self._models:
            self._checking = self._run(check_drafts(self._pair.target, self._models))

    @Slot(object)
    def _on_reported(self, found: object) -> None:
        if isinstance(found, ModelsFound):
            self._models = found.models
            self._checked = None
            self._check()
            self.models_found.emit(self._models)
        elif isinstance(found, DraftsChecked) and self._pair is not None and found.target == self._pair.target:
            self._checked = found
        self._refill()

    @Slot()
    def _choose(self) -> None:
        """Report the pair that the two lists now show."""
        target, draft = str(self._targets.currentData(VALUE) or ""), str(self._drafts.currentData(VALUE))
        if not target:
            return
        if draft == _MAKE:
            self._refill()  # what was chosen before still is
            self.draft_wanted.emit()
            return
        file = None if draft in (NGRAM, NO_DRAFT) else Path(draft)
        base = self._asked or PairSettings(Path(target))
        pair = replace(base, target=Path(target), draft=file, ngram=draft != NO_DRAFT)
        if self._same_again or self._pair is None or _models_of(pair) != _models_of(self._pair):
            self.pair_chosen.emit(pair)

    @Slot(bool)
    def _take_fresh(self, fresh: bool) -> None:  # noqa: FBT001 - Qt's signal
        self._seed.setEnabled(not fresh)
        self.options_changed.emit()


def _models_of(pair: PairSettings) -> tuple[Path, Path | None, bool]:
    """Return what the lists show of a pair; the rest is how it is loaded."""
    return pair.target, pair.draft, pair.ngram
