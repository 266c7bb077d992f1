"""The look's rules: every fate can be read, and told from the others without colours."""

from itertools import product

import pytest
from PySide6.QtGui import QTextCharFormat
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from draftlight.engine.events import TokenFate
from draftlight.settings import ColorScheme, Highlight, Palette
from draftlight.ui.theme import FATE_NAMES, Legend, Theme, fate_colours, scheme_colours, token_format

EVERY_LOOK = list(product(Palette, (False, True)))
LEAST_TEXT = 7.0
LEAST_LINE = 6.0


def luminance(colour: str) -> float:
    """Relative luminance as WCAG 2.2 defines it."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize(("palette", "dark"), EVERY_LOOK)
@pytest.mark.parametrize("fate", TokenFate)
def test_a_token_can_be_read_on_its_fill_and_its_line_seen(palette: Palette, fate: TokenFate, *, dark: bool) -> None:
    ground = scheme_colours(dark=dark).base
    colours = fate_colours(palette, fate, dark=dark)
    assert contrast(colours.text, colours.fill or ground) >= LEAST_TEXT
    assert contrast(colours.line, ground) >= LEAST_LINE


@pytest.mark.parametrize("dark", [False, True])
def test_the_windows_own_text_can_be_read(*, dark: bool) -> None:
    colours = scheme_colours(dark=dark)
    for ground in (colours.window, colours.base, colours.raised, colours.selection, colours.warning_fill):
        assert contrast(colours.text, ground) >= LEAST_TEXT
    for ground in (colours.window, colours.base, colours.raised):
        assert contrast(colours.dim, ground) >= LEAST_LINE
    assert contrast(colours.accent_text, colours.accent) >= LEAST_LINE


@pytest.mark.parametrize(("palette", "dark"), EVERY_LOOK)
def test_fates_differ_by_shape_alone(palette: Palette, *, dark: bool) -> None:
    def shape(drawn: QTextCharFormat) -> tuple[object, ...]:
        return drawn.underlineStyle(), drawn.fontStrikeOut(), drawn.fontOverline()

    shapes = [shape(token_format(palette, fate, dark=dark)) for fate in TokenFate]
    assert len(set(shapes)) == len(shapes) == 7


@pytest.mark.parametrize("dark", [False, True])
def test_textbook_accepted_is_green_and_rejected_is_red(*, dark: bool) -> None:
    for fate, strongest in ((TokenFate.ACCEPTED, 1), (TokenFate.REJECTED, 0)):
        colours = fate_colours(Palette.TEXTBOOK, fate, dark=dark)
        assert colours.fill is not None
        for colour in (colours.fill, colours.line):
            parts = [int(colour[place : place + 2], 16) for place in (1, 3, 5)]
            assert parts[strongest] == max(parts)
            assert parts[strongest] - sorted(parts)[1] >= 20


def test_shapes_only_uses_no_fill() -> None:
    fills = [fate_colours(Palette.SHAPES, fate, dark=dark).fill for fate in TokenFate for dark in (False, True)]
    assert set(fills) == {None}


def test_the_theme_keeps_one_format_a_fate_and_tells_of_changes(qtbot: QtBot, theme: Theme) -> None:
    light = theme.formats[TokenFate.ACCEPTED].background().color()
    with qtbot.waitSignal(theme.changed):
        theme.set_look(ColorScheme.DARK, Palette.TEXTBOOK)
    assert theme.dark
    assert set(theme.formats) == set(TokenFate)
    assert len(theme.formats) <= 12
    assert theme.formats[TokenFate.ACCEPTED].background().color() != light


def test_the_window_takes_the_forced_scheme(qapp: QApplication, theme: Theme) -> None:
    theme.set_look(ColorScheme.DARK, Palette.SAFE)
    assert qapp.palette().window().color().lightness() < 60
    theme.set_look(ColorScheme.LIGHT, Palette.SAFE)
    assert qapp.palette().window().color().lightness() > 200


def test_the_legend_names_every_fate_that_is_drawn(qtbot: QtBot, theme: Theme) -> None:
    legend = Legend(theme)
    qtbot.addWidget(legend)
    assert legend.sizeHint().width() > 100
    for fate in set(TokenFate) - {TokenFate.PLAIN}:
        assert FATE_NAMES[fate] in legend.accessibleDescription()


def test_the_legend_names_only_what_the_highlight_mode_marks(qtbot: QtBot, theme: Theme) -> None:
    legend = Legend(theme)
    qtbot.addWidget(legend)
    whole = legend.sizeHint().width()
    legend.show_mode(Highlight.ACCEPTED)
    assert FATE_NAMES[TokenFate.ACCEPTED] in legend.accessibleDescription()
    assert FATE_NAMES[TokenFate.REJECTED] not in legend.accessibleDescription()
    assert legend.sizeHint().width() < whole
    legend.show_mode(Highlight.OFF)
    assert legend.isHidden()
    legend.show_mode(Highlight.ALL)
    assert FATE_NAMES[TokenFate.REJECTED] in legend.accessibleDescription()
    assert not legend.isHidden()
