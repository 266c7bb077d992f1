"""The list of conversations: find one, begin one, rename, delete and take that back."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import cast

from PySide6.QtCore import QEvent, QItemSelection, QModelIndex, QPoint, QSortFilterProxyModel, Qt, QTimer, Signal, Slot
from PySide6.QtGui import QAction, QKeyEvent, QKeySequence, QStandardItem, QStandardItemModel
from PySide6.QtWidgets import (
    QAbstractItemView,
    QFrame,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QListView,
    QMenu,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from draftlight.errors import UserError
from draftlight.history.records import Conversation
from draftlight.history.store import HistoryStore

_ID = Qt.ItemDataRole.UserRole
_SEARCHED = _ID + 1  # the title on disk: a row must not leave the list under its editor
_UNDO_MS = 15_000
_UNTITLED = "New chat"


class SearchField(QLineEdit):
    """A line that Escape empties; only from an empty one does it reach the window's Stop."""

    def event(self, event: QEvent) -> bool:
        """Keep Escape from the window while there is something to clear."""
        if event.type() is QEvent.Type.ShortcutOverride and self.text():
            pressed = cast("QKeyEvent", event)
            if pressed.key() == Qt.Key.Key_Escape:
                event.accept()
                return True
        return super().event(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Clear on Escape."""
        if event.key() == Qt.Key.Key_Escape and self.text():
            self.clear()
        else:
            super().keyPressEvent(event)


class ConversationList(QWidget):
    """All conversations, the newest first. Deleting asks nothing, because it can be undone."""

    chosen = Signal(int)
    deleted = Signal(int)
    new_asked = Signal()
    failed = Signal(object)  # a UserError

    def __init__(self, store: HistoryStore, parent: QWidget | None = None) -> None:
        """Prepare the list; refresh() reads it."""
        super().__init__(parent)
        self.setObjectName("sidebar")
        self._store = store
        self._current: int | None = None
        self._last_deleted: Conversation | None = None
        self._model = QStandardItemModel(self)
        self._found = QSortFilterProxyModel(self)
        self._found.setSourceModel(self._model)
        self._found.setFilterRole(_SEARCHED)
        self._found.setFilterCaseSensitivity(Qt.CaseSensitivity.CaseInsensitive)
        self._search = SearchField(self)
        self._view = QListView(self)
        self._nothing = QLabel("", self)
        self._undo_bar = QFrame(self)
        self._undo_text = QLabel("", self._undo_bar)
        self._undo_timer = QTimer(self)
        self._undo_timer.setSingleShot(True)
        self._undo_timer.setInterval(_UNDO_MS)
        self._undo_timer.timeout.connect(self._undo_bar.hide)
        self._arrange()
        self._add_actions()
        self._search.textChanged.connect(self._filter)
        self._view.selectionModel().selectionChanged.connect(self._choose)
        self._view.itemDelegate().closeEditor.connect(self._refresh_soon)
        self._model.itemChanged.connect(self._rename)
        self._tell_if_empty()

    @property
    def titles(self) -> list[str]:
        """The titles that are listed now, from the top."""
        return [str(self._found.index(row, 0).data()) for row in range(self._found.rowCount())]

    def lists(self, conversation_id: int) -> bool:
        """Whether there is such a conversation, also where the search hides it."""
        return any(self._model.item(row).data(_ID) == conversation_id for row in range(self._model.rowCount()))

    @Slot()
    def refresh(self) -> None:
        """Read the list again; while a title is being edited, once that has ended."""
        if self._view.state() is not QAbstractItemView.State.EditingState:
            self._read()

    def _read(self) -> None:
        try:
            conversations = self._store.conversations()
        except UserError as error:
            self.failed.emit(error)
            return
        self._model.itemChanged.disconnect(self._rename)
        with self._choosing_nothing():
            self._model.clear()
            for conversation in conversations:
                self._model.appendRow(self._item(conversation))
        self._model.itemChanged.connect(self._rename)
        self._show_current()
        self._tell_if_empty()

    def set_current(self, conversation_id: int | None) -> None:
        """Mark a conversation without choosing it; None marks none."""
        self._current = conversation_id
        self._show_current()

    def focus_search(self) -> None:
        """Put the keyboard into the search field."""
        self._search.setFocus(Qt.FocusReason.ShortcutFocusReason)
        self._search.selectAll()

    @Slot()
    def delete_current(self) -> None:
        """Delete the marked conversation; a bar offers to undo it."""
        if self._current is None:
            return
        try:
            self._last_deleted = self._store.conversation(self._current)
            self._store.delete(self._current)
        except UserError as error:
            self.failed.emit(error)
            return
        deleted, self._current = self._current, None
        self._undo_text.setText(f"Deleted “{_shortened(self._last_deleted.title or _UNTITLED)}”")
        self._undo_bar.show()
        self._undo_timer.start()
        self._read()
        self.deleted.emit(deleted)

    @Slot()
    def undo_delete(self) -> None:
        """Bring back what was deleted last."""
        if self._last_deleted is None:
            return
        try:
            self._store.restore(self._last_deleted.id)
        except UserError as error:
            self.failed.emit(error)
            return
        restored, self._last_deleted = self._last_deleted.id, None
        self._undo_bar.hide()
        self.refresh()
        self.chosen.emit(restored)

    @Slot()
    def rename_current(self) -> None:
        """Edit the marked conversation's title in place."""
        index = self._view.currentIndex()
        if index.isValid():
            self._view.edit(index)

    def _arrange(self) -> None:
        new = QPushButton("New chat", self)
        new.setToolTip("Ctrl+N")
        new.clicked.connect(self.new_asked)
        self._search.setPlaceholderText("Search chats")
        self._search.setClearButtonEnabled(True)
        self._search.setAccessibleName("Search chats by title")
        self._view.setObjectName("chats")
        self._view.setModel(self._found)
        self._view.setAccessibleName("Chats")
        self._view.setEditTriggers(QAbstractItemView.EditTrigger.EditKeyPressed)
        self._view.setTextElideMode(Qt.TextElideMode.ElideRight)
        self._view.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._view.setUniformItemSizes(True)
        self._view.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        self._view.customContextMenuRequested.connect(self._open_menu)
        self._nothing.setObjectName("dim")
        self._nothing.setWordWrap(True)
        self._undo_bar.setObjectName("card")
        undo = QPushButton("Undo", self._undo_bar)
        undo.clicked.connect(self.undo_delete)
        self._undo_text.setWordWrap(True)
        inside = QHBoxLayout(self._undo_bar)
        inside.setContentsMargins(12, 8, 8, 8)
        inside.addWidget(self._undo_text, 1)
        inside.addWidget(undo)
        self._undo_bar.hide()
        layout = QVBoxLayout(self)
        layout.setContentsMargins(12, 12, 12, 12)
        layout.setSpacing(10)
        layout.addWidget(new)
        layout.addWidget(self._search)
        layout.addWidget(self._nothing)
        layout.addWidget(self._view, 1)
        layout.addWidget(self._undo_bar)

    def _add_actions(self) -> None:
        self._rename_action = QAction("Rename", self)
        self._rename_action.setShortcut(QKeySequence(Qt.Key.Key_F2))
        self._rename_action.triggered.connect(self.rename_current)
        self._delete_action = QAction("Delete", self)
        self._delete_action.setShortcut(QKeySequence("Ctrl+Shift+Backspace"))
        self._delete_action.triggered.connect(self.delete_current)
        self.actions_for_menu = (self._rename_action, self._delete_action)

    @staticmethod
    def _item(conversation: Conversation) -> QStandardItem:
        item = QStandardItem(conversation.title or _UNTITLED)
        item.setData(conversation.id, _ID)
        item.setData(item.text(), _SEARCHED)
        changed = datetime.fromtimestamp(conversation.updated_at).astimezone()
        item.setToolTip(f"{conversation.title or _UNTITLED}\n{changed:%d %B %Y, %H:%M}")
        return item

    @contextmanager
    def _choosing_nothing(self) -> Iterator[None]:
        """Let rows come and go: where the marked one goes, Qt marks its neighbour, which is nobody's choice."""
        self._view.selectionModel().selectionChanged.disconnect(self._choose)
        yield
        self._view.selectionModel().selectionChanged.connect(self._choose)

    def _show_current(self) -> None:
        index = self._index_of(self._current)
        if index.isValid():
            self._view.setCurrentIndex(index)
        else:
            self._view.selectionModel().clear()

    def _index_of(self, conversation_id: int | None) -> QModelIndex:
        for row in range(self._found.rowCount()):
            index = self._found.index(row, 0)
            if index.data(_ID) == conversation_id:
                return index
        return QModelIndex()

    @Slot(QItemSelection, QItemSelection)
    def _choose(self, selected: QItemSelection, _deselected: QItemSelection) -> None:
        """Open what the person selects. A row that is only current is not chosen: the focus alone makes one so."""
        for index in selected.indexes():
            if index.data(_ID) != self._current:
                self._current = int(index.data(_ID))
                self.chosen.emit(self._current)

    @Slot(QStandardItem)
    def _rename(self, item: QStandardItem) -> None:
        try:
            self._store.rename(int(item.data(_ID)), item.text())
        except UserError as error:
            self.failed.emit(error)
        self._refresh_soon()

    @Slot()
    def _refresh_soon(self) -> None:
        QTimer.singleShot(0, self.refresh)  # after the editor has let go of the item

    @Slot(str)
    def _filter(self, text: str) -> None:
        with self._choosing_nothing():
            self._found.setFilterFixedString(text.strip())
        self._show_current()
        self._tell_if_empty()

    def _tell_if_empty(self) -> None:
        empty = self._found.rowCount() == 0
        self._nothing.setVisible(empty)
        if empty:
            searched = bool(self._search.text().strip())
            self._nothing.setText("No chat with that title." if searched else "Your chats will be listed here.")

    @Slot(QPoint)
    def _open_menu(self, place: QPoint) -> None:
        if not self._view.indexAt(place).isValid():
            return
        menu = QMenu(self)
        menu.addActions(list(self.actions_for_menu))
        menu.exec(self._view.viewport().mapToGlobal(place))
        menu.deleteLater()


def _shortened(title: str, length: int = 28) -> str:
    return title if len(title) <= length else title[: length - 1].rstrip() + "…"
