"""The list's rules: only the person's own choice opens a chat, and a title being typed is kept."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QLineEdit, QListView
from pytestqt.qtbot import QtBot

from draftlight.history.records import Role
from draftlight.history.store import HistoryStore
from draftlight.ui.chat.conversation_list import ConversationList

TITLES = ("About birds", "About trees", "About stones")


class Listed:
    """A list of three chats, the second one open, in a window that has the keyboard."""

    def __init__(self, store: HistoryStore) -> None:
        self.store = store
        self.ids: list[int] = []
        for title in reversed(TITLES):
            self.ids.insert(0, store.create_conversation().id)
            store.rename(self.ids[0], title)
        self.list = ConversationList(store)
        self.chosen: list[int] = []
        self.list.chosen.connect(self.chosen.append)
        self.list.refresh()
        self.list.set_current(self.ids[1])
        self.list.show()
        self.list.activateWindow()

    @property
    def view(self) -> QListView:
        found = self.list.findChild(QListView)
        assert found is not None
        return found

    @property
    def search(self) -> QLineEdit:
        return self.list._search

    @property
    def editor(self) -> QLineEdit:
        """The field in which a title is being edited."""
        return next(one for one in self.view.findChildren(QLineEdit) if one.isVisible())


@pytest.fixture
def listed(qtbot: QtBot, tmp_path: Path) -> Iterator[Listed]:
    with HistoryStore.open(tmp_path / "chats.db") as store:
        made = Listed(store)
        qtbot.addWidget(made.list)
        yield made


def test_searching_opens_no_chat(listed: Listed) -> None:
    QTest.keyClicks(listed.search, "stones")
    assert listed.list.titles == ["About stones"]
    listed.search.clear()
    assert listed.list.titles == list(TITLES)
    assert listed.view.currentIndex().data() == "About trees"
    assert listed.chosen == []


def test_the_keyboards_arrival_opens_no_chat(listed: Listed) -> None:
    listed.list.set_current(None)
    listed.search.setFocus()
    listed.view.setFocus(Qt.FocusReason.TabFocusReason)
    assert listed.view.hasFocus()
    assert listed.chosen == []


def test_an_arrow_key_and_a_click_open_a_chat(listed: Listed) -> None:
    QTest.keyClick(listed.view, Qt.Key.Key_Down)
    assert listed.chosen == [listed.ids[2]]
    first = listed.view.visualRect(listed.view.model().index(0, 0)).center()
    QTest.mouseClick(listed.view.viewport(), Qt.MouseButton.LeftButton, pos=first)
    assert listed.chosen == [listed.ids[2], listed.ids[0]]


def test_a_title_being_edited_is_kept_while_the_list_changes(qtbot: QtBot, listed: Listed) -> None:
    listed.list.rename_current()
    listed.editor.setText("About oaks")
    listed.store.add_message(listed.ids[2], Role.USER, "an answer would change the order, too")
    listed.list.refresh()
    listed.list.set_current(listed.ids[1])
    QTest.keyClick(listed.editor, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: listed.list.titles == ["About stones", "About birds", "About oaks"])
    assert listed.store.conversation(listed.ids[1]).title == "About oaks"
    assert listed.chosen == []


def test_a_list_that_changed_during_an_edit_is_read_when_the_edit_is_given_up(qtbot: QtBot, listed: Listed) -> None:
    listed.list.rename_current()
    listed.store.delete(listed.ids[0])
    listed.list.refresh()
    assert len(listed.list.titles) == 3
    QTest.keyClick(listed.editor, Qt.Key.Key_Escape)
    qtbot.waitUntil(lambda: listed.list.titles == ["About trees", "About stones"])


def test_a_new_title_outside_the_search_opens_no_other_chat(qtbot: QtBot, listed: Listed) -> None:
    QTest.keyClicks(listed.search, "e")
    assert listed.list.titles == ["About trees", "About stones"]
    listed.list.rename_current()
    listed.editor.setText("About oaks")
    QTest.keyClick(listed.editor, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: listed.list.titles == ["About stones"])
    assert listed.store.conversation(listed.ids[1]).title == "About oaks"
    assert listed.chosen == []


def test_a_chat_that_is_deleted_under_its_editor_goes_at_once(listed: Listed) -> None:
    listed.list.rename_current()
    listed.list.delete_current()
    assert listed.list.titles == ["About birds", "About stones"]
    assert listed.chosen == []


def test_a_chat_is_listed_also_where_the_search_hides_it(listed: Listed) -> None:
    listed.search.setText("stones")
    assert listed.list.lists(listed.ids[0])
    assert not listed.list.lists(max(listed.ids) + 1)


def test_escape_clears_the_search_and_stops_an_answer_only_from_an_empty_one(qtbot: QtBot, listed: Listed) -> None:
    stopped: list[bool] = []
    stop = QShortcut(QKeySequence(Qt.Key.Key_Escape), listed.list)
    stop.activated.connect(lambda: stopped.append(True))
    listed.list.activateWindow()
    listed.search.setFocus()
    qtbot.waitUntil(listed.search.hasFocus)
    QTest.keyClicks(listed.search, "stones")
    QTest.keyClick(listed.search, Qt.Key.Key_Escape)
    assert listed.search.text() == ""
    assert stopped == []
    QTest.keyClick(listed.search, Qt.Key.Key_Escape)
    assert stopped == [True]
