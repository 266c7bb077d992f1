"""The bottom line's rules: it tells what there is room for, the speed last of all."""

from PySide6.QtWidgets import QLabel
from pytestqt.qtbot import QtBot

from draftlight.engine.metrics import SpeculationStats
from draftlight.llama.threads import ThreadState
from draftlight.ui.chat.status_bar import StatusBar

STATS = SpeculationStats(n_rounds=9, n_committed=20, n_drafted=27, n_accepted=11, verify_ms=500.0, saved_ms=200.0)


def shown(bar: StatusBar) -> set[str]:
    return {name for name, label in bar._figures.items() if not label.isHidden()}


def test_a_narrow_window_drops_figures_and_a_wide_one_has_them_again(qtbot: QtBot) -> None:
    bar = StatusBar()
    qtbot.addWidget(bar)
    bar.resize(1200, 36)
    bar.show()
    assert shown(bar) == set()
    bar.show_stats(STATS, "fast")
    bar.show_context(70, 2048)
    assert shown(bar) == {"speed", "accepted", "efficiency", "equality", "speed_up"}
    dropped: list[str] = []
    for width in range(1200, 200, -10):
        bar.resize(width, 36)
        dropped += sorted({"speed", "accepted", "efficiency", "equality", "speed_up"} - shown(bar) - set(dropped))
    assert dropped == ["efficiency", "accepted", "equality", "speed_up"], "in this order, the speed never"
    bar.resize(1200, 36)
    assert len(shown(bar)) == 5
    assert bar.minimumSizeHint().width() == 0, "it must not hold the window open"


def test_that_fewer_threads_compute_is_told_with_the_reason_until_all_do_again(qtbot: QtBot) -> None:
    bar = StatusBar()
    qtbot.addWidget(bar)
    bar.resize(1200, 36)
    bar.show()
    reason = "Other programs keep the processor busy: 1 of 2 threads are used."
    bar.show_threads(ThreadState(1, 2, reason))
    assert "1 of 2 threads" in bar.text
    assert any(label.isVisible() and label.toolTip() == reason for label in bar.findChildren(QLabel))
    bar.show_threads(ThreadState(2, 2))
    assert "threads" not in bar.text
    assert not any(label.isVisible() and label.toolTip() == reason for label in bar.findChildren(QLabel))
