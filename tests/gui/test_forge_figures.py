"""The rules of the forge's figures: round axes, points that follow the run, words that say what pictures show."""

import pytest
from PySide6.QtGui import QColor, QImage
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from draftlight.forge.reports import AcceptanceMeasured, ChatsWritten, Stage, StageBegun, Trained
from draftlight.settings import ColorScheme, Palette
from draftlight.ui.forge.curve import ACCEPTANCE, LOSS, Curve
from draftlight.ui.forge.plot import rounded_axis
from draftlight.ui.forge.progress import MOST_POINTS, Progress
from draftlight.ui.forge.staircase import Staircase
from draftlight.ui.forge.words import command_in, duration, judgement, ratio, time_left
from draftlight.ui.theme import DARK, LIGHT, SchemeColours, Theme
from scripted_forge import IN_VAIN, NEVER, WORTH_IT


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.0, 3.1, (0.0, 1.0, 2.0, 3.0, 4.0)),
        (1.72, 4.6, (1.0, 2.0, 3.0, 4.0, 5.0)),
        (0, 3_000_000, (0, 1_000_000, 2_000_000, 3_000_000)),
        (2.5, 2.5, (2.0, 3.0, 4.0, 5.0)),
    ],
)
def test_an_axis_holds_its_values_between_round_numbers(low: float, high: float, ticks: tuple[float, ...]) -> None:
    axis = rounded_axis(low, high, 4, "name", str)
    assert axis.ticks == pytest.approx(ticks)
    assert axis.share(low) >= 0
    assert axis.share(high) <= 1


def count(widget: QWidget, colour: str) -> int:
    """Count the pixels of exactly this colour."""
    image = widget.grab().toImage().convertToFormat(QImage.Format.Format_RGB32)
    wanted = QColor(colour).rgb()
    return sum(image.pixel(x, y) == wanted for x in range(image.width()) for y in range(image.height()))


@pytest.mark.parametrize(("scheme", "colours"), [(ColorScheme.LIGHT, LIGHT), (ColorScheme.DARK, DARK)])
def test_a_curve_is_drawn_in_the_colours_in_force(
    qtbot: QtBot, theme: Theme, scheme: ColorScheme, colours: SchemeColours
) -> None:
    theme.set_look(scheme, Palette.TEXTBOOK)
    curve = Curve(ACCEPTANCE)
    qtbot.addWidget(curve)
    curve.resize(320, 180)
    curve.show()
    assert count(curve, colours.accent) == 0
    curve.show_points([(1_000, 0.2), (2_000, 0.4), (3_000, 0.5)], expected=0.6)
    assert count(curve, colours.accent) > 60
    theme.set_look(ColorScheme.LIGHT, Palette.TEXTBOOK)


def test_a_steep_beginning_does_not_flatten_what_follows(qtbot: QtBot) -> None:
    curve = Curve(LOSS)
    qtbot.addWidget(curve)
    curve.resize(320, 180)
    curve.show()
    curve.show_points([(1_000, 11.0), *((n * 1_000, 4.0 - 2.0 * n / 400) for n in range(20, 401))])
    image = curve.grab().toImage().convertToFormat(QImage.Format.Format_RGB32)
    accent = QColor(LIGHT.accent).rgb()
    later = [y for y in range(image.height()) for x in range(160, 320) if image.pixel(x, y) == accent]
    assert max(later) - min(later) > 0.25 * image.height()
    assert "11.00 at first" in curve.summary


def test_an_empty_curve_says_that_there_is_no_value(qtbot: QtBot) -> None:
    curve = Curve(LOSS)
    qtbot.addWidget(curve)
    assert curve.summary == "Loss: no value yet."
    curve.grab()


def test_the_staircase_has_a_twin_in_words(qtbot: QtBot) -> None:
    picture = Staircase()
    qtbot.addWidget(picture)
    picture.show_outlook(NEVER)
    picture.grab()
    assert picture.summary.splitlines()[1] == "K = 1: costs 2.18, brings 1.40 tokens, 0.64x"
    assert len(picture.summary.splitlines()) == 5


def test_a_resumed_runs_points_take_the_place_of_those_after_them() -> None:
    progress = Progress()
    for n_tokens, loss in ((100, 4.0), (200, 3.0), (300, 2.0), (200, 2.9)):
        progress.take(Trained(n_tokens, 400, loss, 60.0))
    assert progress.losses == [(100, 4.0), (200, 2.9)]


def test_a_resumed_runs_loss_curve_begins_where_the_run_began() -> None:
    progress = Progress()
    for look in (AcceptanceMeasured(100, 0.1, 1.1, 4.0), AcceptanceMeasured(200, 0.2, 1.3, 3.0)):
        progress.take(look)  # told again before the training goes on
    progress.take(Trained(250, 400, 2.8, 60.0))
    assert progress.losses == [(100, 4.0), (200, 3.0), (250, 2.8)]


def test_a_long_run_keeps_a_bounded_number_of_points_from_its_first_to_its_last() -> None:
    progress = Progress()
    for n_tokens in range(3 * MOST_POINTS):
        progress.take(Trained(n_tokens, 3 * MOST_POINTS, 1.0, 60.0))
    assert len(progress.losses) <= MOST_POINTS
    assert (progress.losses[0][0], progress.losses[-1][0]) == (0, 3 * MOST_POINTS - 1)


def test_a_new_part_forgets_how_far_the_one_before_was() -> None:
    progress = Progress()
    assert progress.doing == "starting"
    progress.take(StageBegun(Stage.CHATS, "The target writes"))
    progress.take(ChatsWritten(50, 100, 130.0, "Hello"))
    assert (progress.step, progress.doing) == (
        "Let the target write chats: 50 %, 2 min left",
        "the target writes chats, 2 min left",
    )
    progress.take(StageBegun(Stage.TRAINING, "It learns"))
    assert (progress.step, progress.fraction, progress.sample) == ("Train the draft model", None, "Hello")


def test_times_and_ratios_are_said_as_people_say_them() -> None:
    assert [time_left(seconds) for seconds in (20, 61, 5400, 7200)] == [
        "less than a minute left",
        "1 min left",
        "1 h 30 min left",
        "2 h left",
    ]
    assert duration(480) == "8 h"
    assert [ratio(each) for each in (0.64, 1.04, 1.31)] == ["0.64x", "1.04x", "1.3x"]


def test_an_outlook_is_judged_plainly() -> None:
    assert judgement(WORTH_IT) == "Answers could come 1.4x as fast"
    assert judgement(IN_VAIN) == "It will most likely not pay here"
    assert judgement(NEVER) == "It cannot make this target faster here"


def test_the_command_of_a_remedy_is_what_follows_with() -> None:
    assert command_in('Install them, with: "/a b/python" -m pip install "torch==2"') == (
        '"/a b/python" -m pip install "torch==2"'
    )
    assert command_in("Plug the machine in: it takes long.") == ""
