"""Drop-down lists of models and of choices: names that are too long lose their middle, every entry has its meaning."""

from collections.abc import Sequence
from pathlib import Path
from typing import cast

from PySide6.QtCore import QSignalBlocker, QSize, Qt, Slot
from PySide6.QtGui import QPaintEvent, QStandardItem, QStandardItemModel
from PySide6.QtWidgets import QComboBox, QSizePolicy, QStyle, QStyleOptionComboBox, QStylePainter, QWidget

VALUE = Qt.ItemDataRole.UserRole
_SHORT = VALUE + 1  # what the closed list shows
_POPUP_WIDTH = 560
_LONGEST_REASON = 64  # characters in the list; the tool tip has all of it


class ModelList(QComboBox):
    """Names of files: closed it shows as much of the chosen one's beginning and end as there is room for."""

    def __init__(self, name: str, meaning: str, parent: QWidget | None = None) -> None:
        """Start empty."""
        super().__init__(parent)
        self._meaning = meaning
        self.setAccessibleName(name)
        self.setAccessibleDescription(meaning)
        self.setToolTip(meaning)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.setMinimumContentsLength(6)
        self.currentIndexChanged.connect(self._tell_name)

    def show_items(self, items: Sequence[QStandardItem], chosen: str) -> None:
        """Replace the items and show the chosen one, quietly."""
        with QSignalBlocker(self):
            model = cast("QStandardItemModel", self.model())
            model.clear()
            for item in items:
                model.appendRow(item)
            self.setCurrentIndex(next((row for row, item in enumerate(items) if item.data(VALUE) == chosen), -1))
            self.view().setMinimumWidth(_POPUP_WIDTH)
        self._tell_name()

    @property
    def shown(self) -> str:
        """What the closed list has room for."""
        option = QStyleOptionComboBox()
        self.initStyleOption(option)
        room = self.style().subControlRect(
            QStyle.ComplexControl.CC_ComboBox, option, QStyle.SubControl.SC_ComboBoxEditField, self
        )
        name = str(self.currentData(_SHORT) or self.currentText())
        return self.fontMetrics().elidedText(name, Qt.TextElideMode.ElideMiddle, room.width() - 2)

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Draw the list closed."""
        painter = QStylePainter(self)
        option = QStyleOptionComboBox()
        self.initStyleOption(option)
        option.currentText = self.shown
        painter.drawComplexControl(QStyle.ComplexControl.CC_ComboBox, option)
        painter.drawControl(QStyle.ControlElement.CE_ComboBoxLabel, option)

    @Slot()
    def _tell_name(self) -> None:
        tip = self.currentData(Qt.ItemDataRole.ToolTipRole)
        self.setToolTip("\n".join(filter(None, (self.currentText(), str(tip or ""), self._meaning))))
        self.update()


class ChoiceList(QComboBox):
    """A few short choices: as wide as the longest of them."""

    def __init__(self, name: str, meaning: str, parent: QWidget | None = None) -> None:
        """Start empty."""
        super().__init__(parent)
        self.setAccessibleName(name)
        self.setAccessibleDescription(meaning)
        self.setToolTip(meaning)
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        self.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToContents)

    def add(self, text: str, value: object, meaning: str = "") -> None:
        """Offer a further choice."""
        self.addItem(text, value)
        if meaning:
            self.setItemData(self.count() - 1, meaning, Qt.ItemDataRole.ToolTipRole)
            self.setItemData(self.count() - 1, meaning, Qt.ItemDataRole.AccessibleDescriptionRole)

    def minimumSizeHint(self) -> QSize:
        """Never cut a choice off."""
        return self.sizeHint()


def model_item(
    text: str, value: str, tip: str, *, more: str = "", reason: str = "", enabled: bool = True
) -> QStandardItem:
    """Return an entry; `more` stands behind its name in the opened list, `reason` why it cannot be chosen."""
    short = reason if len(reason) <= _LONGEST_REASON else f"{reason[:_LONGEST_REASON].rstrip()} …"
    item = QStandardItem("   ".join(filter(None, (text, more, f"({short})" if short else ""))))
    item.setData(value, VALUE)
    item.setData(text, _SHORT)
    item.setToolTip(tip)
    item.setData(tip, Qt.ItemDataRole.AccessibleDescriptionRole)
    item.setEnabled(enabled)
    return item


def model_name(path: Path) -> str:
    """Return a model file's name without its ending."""
    return path.name.removesuffix(".gguf")


def file_size(n_bytes: int) -> str:
    """Return the size of a file in decimal units."""
    return f"{n_bytes / 1e9:.1f} GB" if n_bytes >= 1e9 else f"{max(1, round(n_bytes / 1e6)):,} MB"  # noqa: PLR2004 - giga
