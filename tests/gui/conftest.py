"""What every GUI test shares: an offscreen platform, a theme, a watch on leaked threads, things opened and closed."""

import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ["QT_QPA_PLATFORM"] = "offscreen"  # before any Qt import, so that no test needs a display

import pytest
import shiboken6
from PySide6.QtCore import QThread
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from draftlight.engine.cancel import CancelToken
from draftlight.history.store import HistoryStore
from draftlight.library.scanner import ModelFile, list_models
from draftlight.settings import ColorScheme, PairSettings, Palette, Settings
from draftlight.ui.chat.transcript import TranscriptView
from draftlight.ui.main_window import MainWindow, WindowParts
from draftlight.ui.theme import Theme
from gui.forging import Forging, ScriptedForge, target_of
from gui.opened import READY, Opened, Screen
from gui.scripted import PAIR, StoryDecoder, scripted_service
from unit.library.conftest import gguf_bytes, metadata


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the offscreen platform say that it has no window manager; every other Qt warning fails."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.qt_log_ignore("does not support (propagateSizeHints|raise)"))


@pytest.fixture(autouse=True)
def no_leaked_qthreads(qapp: QApplication) -> Iterator[None]:  # noqa: ARG001 - the application must outlive the threads
    """Fail a test that leaves a QThread running; it would abort the process at exit."""
    yield
    threads = [thing for thing in gc.get_objects() if type(thing) is QThread and shiboken6.isValid(thing)]
    running = [thread.objectName() for thread in threads if thread.isRunning()]
    assert not running, f"threads still run: {running}"


@pytest.fixture(autouse=True)
def garbage_is_collected_between_tests() -> Iterator[None]:
    """As in the program: a collection in a working thread could free widgets there, which crashes Qt."""
    gc.disable()
    yield
    gc.enable()
    gc.collect()


@pytest.fixture(scope="session", autouse=True)
def imports_are_no_garbage() -> Iterator[None]:
    """Keep what is there before the first test out of each collection: it would make them ten times as long."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def theme(qapp: QApplication) -> Theme:
    made = Theme(qapp)
    made.set_look(ColorScheme.LIGHT, Palette.TEXTBOOK)
    return made


@pytest.fixture
def view(qtbot: QtBot, theme: Theme) -> TranscriptView:
    made = TranscriptView(theme)
    qtbot.addWidget(made)
    made.resize(900, 600)
    made.show()
    return made


@pytest.fixture
def build(qtbot: QtBot, theme: Theme, tmp_path: Path) -> Iterator[Callable[..., Screen]]:
    """Open a conversation's widgets around a decoder, with a loaded pair."""
    built: list[Screen] = []

    def make(decoder: StoryDecoder | None = None, stores: type[HistoryStore] = HistoryStore) -> Screen:
        path = tmp_path / "chats.db"
        player = decoder or StoryDecoder()
        service, _ = scripted_service(path, player, stores)
        screen = Screen(path, service, player, theme)
        built.append(screen)
        widgets = screen.widgets
        for widget in (widgets.transcript, widgets.composer, widgets.conversations, widgets.status):
            qtbot.addWidget(widget)
            widget.show()
        list(service.load(PAIR, CancelToken()))
        screen.controller.set_pair(READY)
        return screen

    yield make
    for screen in built:
        assert screen.engine.shutdown()
        assert screen.reader.shutdown()
        screen.store.close()


@pytest.fixture
def screen(build: Callable[..., Screen]) -> Screen:
    return build()


@pytest.fixture
def models(tmp_path: Path) -> tuple[ModelFile, ...]:
    """Two models to learn from, one of a family that nothing can be learned from, and an embedding model."""
    folder = tmp_path / "models"
    folder.mkdir()
    entries = {
        "another": metadata(),
        "big": metadata(),
        "embedding": metadata(general__architecture="bert"),
        "stranger": metadata(general__architecture="phi3"),
    }
    for name, facts in entries.items():
        (folder / f"{name}.gguf").write_bytes(gguf_bytes(facts))
    return list_models([folder])


@pytest.fixture
def forging(qtbot: QtBot, models: tuple[ModelFile, ...]) -> Iterator[Callable[..., Forging]]:
    """Open the window with `big` chosen."""
    opened: list[Forging] = []

    def make(*arguments: object, **options: object) -> Forging:
        forge = ScriptedForge(*arguments, **options)  # type: ignore[arg-type] # passed on as they are
        made = Forging(forge)
        qtbot.addWidget(made.window)
        made.window.show_models(models, target_of(models))
        made.window.show()
        opened.append(made)
        return made

    yield make
    for one in opened:
        assert one.run.shutdown()


@pytest.fixture
def opening(qtbot: QtBot, theme: Theme, tmp_path: Path) -> Iterator[Callable[..., Opened]]:
    """Open the window, without starting it."""
    opened: list[Opened] = []

    def open_window(
        decoder: StoryDecoder | None = None,
        pair: PairSettings | None = PAIR,
        models: tuple[ModelFile, ...] = (),
        forge: ScriptedForge | None = None,
        **changes: object,
    ) -> Opened:
        path = tmp_path / "chats.db"
        player = decoder or StoryDecoder()
        service, loader = scripted_service(path, player)
        store = HistoryStore.open(path)
        saved: list[Settings] = []
        parts = WindowParts(
            service,
            lambda: HistoryStore.open(path),
            store,
            Settings().changed(color_scheme=ColorScheme.LIGHT, **changes),
            saved.append,
            lambda: models,
            forge or ScriptedForge(),
            pair,
            tmp_path / "window.ini",
        )
        window = MainWindow(parts, theme)
        qtbot.addWidget(window)
        opened.append(Opened(window, store, player, loader, saved))
        window.show()
        return opened[-1]

    yield open_window
    for one in opened:
        assert one.window.shutdown()
        one.store.close()


@pytest.fixture
def ready(qtbot: QtBot, opening: Callable[..., Opened]) -> Callable[..., Opened]:
    """Open the window and wait until its pair is loaded."""

    def make(*arguments: object, **changes: object) -> Opened:
        opened = opening(*arguments, **changes)
        with qtbot.waitSignal(opened.window.loader.ended):
            opened.window.start(None)
        return opened

    return make
