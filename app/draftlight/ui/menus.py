"""Entries of menus, and groups of which one is chosen."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from PySide6.QtGui import QAction, QActionGroup
from PySide6.QtWidgets import QMenu

Value = TypeVar("Value", bound=str)


def add(menu: QMenu, text: str, keys: str, slot: Callable[..., object]) -> QAction:
    """Add an entry that calls `slot`; `keys` are its shortcut, empty for none."""
    action = menu.addAction(text)
    if keys:
        action.setShortcut(keys)
    action.triggered.connect(slot)
    return action


def choices(menu: QMenu, title: str, names: Mapping[Value, str], chosen: str) -> QActionGroup:
    """Add a menu below this one of which one entry is in force; each has its value as its data."""
    below = menu.addMenu(title)
    group = QActionGroup(below)
    for value, name in names.items():
        action = below.addAction(name)
        action.setData(str(value))
        action.setCheckable(True)
        action.setChecked(value == chosen)
        group.addAction(action)
    return group
