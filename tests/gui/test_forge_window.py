"""The rules of the forge's window: the outlook comes first, the run is told as it goes, every end has a way on."""

from collections.abc import Callable
from functools import partial

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QMessageBox, QPlainTextEdit, QWidget
from pytestqt.qtbot import QtBot

from draftlight.errors import UserError
from draftlight.forge.client import forge
from draftlight.forge.request import request_for
from draftlight.library.scanner import ModelFile
from draftlight.ui.forge import choice
from draftlight.ui.forge.run import ForgeRun, Phase
from draftlight.ui.forge.window import ForgeWindow
from gui.forging import (
    IN_TRAINING,
    SAMPLE,
    Forging,
    begin,
    buttons,
    choices,
    leave_unfinished,
    press,
    question,
    target_of,
    words,
)
from scripted_forge import IN_VAIN, NEVER, command


def test_the_pairs_target_is_chosen_and_what_cannot_be_learned_from_is_greyed_with_the_reason(
    forging: Callable[..., Forging],
) -> None:
    targets = choices(forging().window, "Target")
    listed = [targets.itemText(row).split()[0] for row in range(targets.count())]
    assert listed == ["big", "another", "stranger"], "the embedding model writes no text"
    assert targets.currentText().startswith("big")
    strange = targets.model().index(2, 0)
    assert not strange.flags() & Qt.ItemFlag.ItemIsEnabled
    assert "phi3 family" in str(strange.data(Qt.ItemDataRole.ToolTipRole))


def test_an_hour_is_the_usual_time_and_the_shape_stands_behind_more(
    qtbot: QtBot, forging: Callable[..., Forging]
) -> None:
    made = forging()
    time, shape = choices(made.window, "Time"), choices(made.window, "Shape")
    assert [time.itemText(row) for row in range(time.count())] == [
        "15 min", "30 min", "1 h", "2 h", "3 h", "4 h", "6 h", "8 h",
    ]  # fmt: skip
    assert time.currentText() == "1 h"
    assert not shape.isVisible()
    made.press("More")
    assert shape.isVisible()
    time.setCurrentIndex(time.count() - 1)
    shape.setCurrentIndex(shape.findText("Pruned"))
    made.press("Measure what is possible")
    made.until(qtbot, Phase.OUTLOOK)
    (request,) = made.forge.requests
    assert (request.target.name, request.minutes, request.size) == ("big.gguf", 480, "pruned")
    assert request.only_outlook


def test_missing_packages_are_told_with_the_command_to_copy(
    forging: Callable[..., Forging], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> None:
        raise UserError("Packages are not installed: torch.", "Install them, a large download, with: pip install x")

    monkeypatch.setattr(choice, "require_packages", missing)
    made = forging()
    assert "Packages are not installed: torch. Install them, a large download" in words(made.window)
    made.press("Copy the command")
    assert QGuiApplication.clipboard().text() == "pip install x"


def test_where_the_packages_are_nothing_asks_for_them(forging: Callable[..., Forging]) -> None:
    made = forging()
    assert "They are installed." in words(made.window)
    assert "Copy the command" not in buttons(made.window)


def test_the_outlook_tells_prices_and_gains_before_anything_is_made(
    qtbot: QtBot, forging: Callable[..., Forging]
) -> None:
    made = forging()
    made.press("Measure what is possible")
    made.until(qtbot, Phase.OUTLOOK)
    told = words(made.window)
    assert "costs 1.10, 1.20, 1.30 and 1.60 plain steps" in told
    assert "drafting one would cost 0.08" in told
    assert "So expect about 1.4 times the speed, and at most 2.6 times." in told
    picture = made.window.outlook.picture.summary
    assert "K = 2: costs 1.36, brings 1.96 tokens, 1.4x" in picture
    made.press("Make the draft model")
    made.until(qtbot, Phase.MADE)
    assert [request.only_outlook for request in made.forge.requests] == [True, False]


@pytest.mark.parametrize(
    ("outlook", "heading"),
    [(NEVER, "It cannot make this target faster here"), (IN_VAIN, "It will most likely not pay here")],
)
def test_where_it_cannot_pay_the_window_says_so_and_offers_the_run_for_learning(
    qtbot: QtBot, forging: Callable[..., Forging], outlook: object, heading: str
) -> None:
    made = forging(outlook=outlook)
    made.press("Measure what is possible")
    made.until(qtbot, Phase.OUTLOOK)
    assert heading in words(made.window)
    assert "only for teaching" in words(made.window)
    assert set(buttons(made.window)) == {"Make it anyway, to learn from", "Back"}
    made.press("Back")
    assert made.window.page is made.window.choice


def test_a_run_tells_its_parts_its_time_its_curves_and_what_the_target_writes(
    qtbot: QtBot, forging: Callable[..., Forging]
) -> None:
    made = forging(hold_at=IN_TRAINING)
    begin(qtbot, made)
    page = made.window.running
    assert made.window.page is page
    assert "Train the draft model: 50 %, 12 min left" in words(page)
    parts = next(child for child in page.findChildren(QWidget) if child.accessibleName() == "Parts of the run")
    assert "Let the target write chats: done; Train the draft model: now; Measure" in parts.accessibleDescription()
    assert page.loss.points == ((1_000, 3.5), (2_000, 2.25))
    assert page.acceptance.points == ((1_000, 0.31), (2_000, 0.52))
    assert page.loss.accessibleDescription() == "Loss: 2.25 after 2,000 tokens, 3.50 at first."
    assert page.acceptance.accessibleDescription() == (
        "Acceptance: 52 % after 2,000 tokens, 31 % at first. Expected in the end: 60 %."
    )
    sample = page.findChild(QPlainTextEdit)
    assert sample is not None
    assert sample.toPlainText() == SAMPLE


def test_a_pause_holds_the_run_up_until_it_is_to_go_on(qtbot: QtBot, forging: Callable[..., Forging]) -> None:
    made = forging(hold_at=IN_TRAINING)
    begin(qtbot, made)
    made.press("Pause")
    assert made.forge.controls[-1].paused
    assert "It pauses once the step is done that it is in …" in words(made.window)
    assert made.run.sentence == "Making a draft model: pausing"
    made.forge.notices.set()
    qtbot.waitUntil(lambda: "Paused." in words(made.window))
    assert made.run.sentence == "Making a draft model: paused"
    made.press("Go on")
    assert not made.forge.controls[-1].paused
    assert made.run.sentence.startswith("Making a draft model: training")
    made.press("Pause")
    qtbot.waitUntil(lambda: "Paused." in words(made.window))
    made.press("Go on")
    made.forge.go_on.set()
    made.until(qtbot, Phase.MADE)


def test_a_cancel_asks_first_and_what_was_done_can_be_resumed(
    qtbot: QtBot, forging: Callable[..., Forging], models: tuple[ModelFile, ...]
) -> None:
    made = forging(hold_at=IN_TRAINING)
    begin(qtbot, made)
    leave_unfinished(target_of(models))
    made.press("Cancel …")
    press(question(made.window), "Let it run")
    assert not made.run.stopping
    made.press("Cancel …")
    assert "kept" in question(made.window).informativeText()
    press(question(made.window), "Stop it")
    made.until(qtbot, Phase.CHOOSING)
    assert made.forge.stopped.is_set()
    assert "was not finished. What it has done is kept." in words(made.window)
    made.forge.hold_at = None
    made.press("Resume")
    made.until(qtbot, Phase.MADE)
    assert not made.forge.requests[-1].only_outlook


def test_a_question_whose_run_has_ended_meanwhile_goes_away(qtbot: QtBot, forging: Callable[..., Forging]) -> None:
    made = forging(hold_at=IN_TRAINING)
    begin(qtbot, made)
    made.press("Cancel …")
    assert question(made.window)
    made.forge.go_on.set()
    made.until(qtbot, Phase.MADE)
    assert not any(box.isVisible() for box in made.window.findChildren(QMessageBox))


def test_starting_over_asks_first_and_then_deletes_what_was_kept(
    qtbot: QtBot, forging: Callable[..., Forging], models: tuple[ModelFile, ...]
) -> None:
    folder = leave_unfinished(target_of(models))
    made = forging()
    assert set(buttons(made.window)) == {"More", "Resume", "Start over …"}
    assert "A run for this target (1 h, automatic shape) was not finished." in words(made.window)
    made.press("Start over …")
    press(question(made.window), "Keep it")
    assert folder.exists()
    made.press("Start over …")
    press(question(made.window), "Start over")
    made.until(qtbot, Phase.OUTLOOK)
    assert not folder.exists()


def test_another_target_has_no_unfinished_run(forging: Callable[..., Forging], models: tuple[ModelFile, ...]) -> None:
    leave_unfinished(target_of(models))
    made = forging()
    targets = choices(made.window, "Target")
    targets.setCurrentIndex(1)
    assert "Measure what is possible" in buttons(made.window)
    targets.setCurrentIndex(0)
    assert "Resume" in buttons(made.window)


def test_closing_the_window_leaves_the_run_going(qtbot: QtBot, forging: Callable[..., Forging]) -> None:
    made = forging(hold_at=IN_TRAINING)
    begin(qtbot, made)
    QTest.keyClick(made.window, Qt.Key.Key_Escape)
    assert not made.window.isVisible()
    assert made.run.busy
    made.forge.go_on.set()
    made.until(qtbot, Phase.MADE)


def test_the_window_fits_a_small_screen_and_twice_the_font(qtbot: QtBot, forging: Callable[..., Forging]) -> None:
    made = forging(hold_at=IN_TRAINING)
    begin(qtbot, made)
    font = made.window.font()
    font.setPointSizeF(2 * font.pointSizeF())
    made.window.setFont(font)
    QTest.qWait(0)
    smallest = made.window.minimumSizeHint()
    assert smallest.width() <= 1024
    assert smallest.height() <= 700


def test_the_keyboard_reaches_everything_that_can_be_pressed_or_read(
    qtbot: QtBot, forging: Callable[..., Forging]
) -> None:
    made = forging(hold_at=IN_TRAINING)
    begin(qtbot, made)
    page = made.window.running
    reached: list[QWidget] = []
    made.window.activateWindow()
    page.loss.setFocus()
    for _ in range(12):
        focused = made.window.focusWidget()
        assert focused is not None
        reached.append(focused)
        QTest.keyClick(focused, Qt.Key.Key_Tab)
    named = {widget.accessibleName() or getattr(widget, "text", str)() for widget in reached}
    assert {"Loss, a curve", "Acceptance, a curve", "What the target writes"} <= named
    assert {"&Pause", "&Cancel …", "C&lose this window; the run goes on"} <= named


def test_the_first_page_is_walked_through_from_the_target_on(forging: Callable[..., Forging]) -> None:
    made = forging()
    made.window.activateWindow()
    made.window.choice.first.setFocus()
    walked = []
    for _ in range(4):
        focused = made.window.focusWidget()
        assert focused is not None
        walked.append(focused.accessibleName() or getattr(focused, "text", str)())
        QTest.keyClick(focused, Qt.Key.Key_Tab)
    assert walked == ["Target", "Time", "M&ore", "&Measure what is possible"]


def test_no_two_controls_of_a_page_share_a_key(qtbot: QtBot, forging: Callable[..., Forging]) -> None:
    made = forging(hold_at=IN_TRAINING)
    begin(qtbot, made)
    for page in (made.window.choice, made.window.outlook, made.window.running, made.window.result):
        texts = [getattr(child, "text", str)() for child in page.findChildren(QWidget)]
        keys = [text[text.index("&") + 1].lower() for text in texts if isinstance(text, str) and "&" in text]
        assert len(keys) == len(set(keys)), keys


def test_a_pause_and_the_end_of_the_program_reach_the_runs_own_process(
    qtbot: QtBot, models: tuple[ModelFile, ...]
) -> None:
    run = ForgeRun(partial(forge, command=command("listen")))
    window = ForgeWindow(run)
    qtbot.addWidget(window)
    window.show_models(models, target_of(models))
    window.show()
    press(window, "Measure what is possible")
    qtbot.waitUntil(lambda: run.phase is Phase.OUTLOOK, timeout=60_000)
    press(window, "Make the draft model")
    qtbot.waitUntil(lambda: bool(run.progress.losses), timeout=60_000)
    press(window, "Pause")
    qtbot.waitUntil(lambda: run.progress.sample == "told: pause")
    press(window, "Go on")
    qtbot.waitUntil(lambda: run.progress.sample == "told: go on")
    assert run.shutdown()
    assert (request_for(target_of(models)).folder / "saved").read_text() == "stop"
