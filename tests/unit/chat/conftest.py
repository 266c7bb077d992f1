"""Chats with a scripted engine, each with a database of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from scripted_chat import Chat


@pytest.fixture
def chat(tmp_path: Path) -> Iterator[Chat]:
    made = Chat(tmp_path / "chats.db")
    yield made
    made.store.close()


@pytest.fixture
def saving(tmp_path: Path) -> Iterator[Chat]:
    """A chat whose clock makes a save due after each event."""
    made = Chat(tmp_path / "chats.db", step_seconds=1.0)
    yield made
    made.store.close()
