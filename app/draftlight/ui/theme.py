"""Colours, shapes and the style sheet. Knows the fates of tokens, not the widgets that show them.

Every fate has a hue and a shape, so that none depends on seeing colours: accepted is underlined; rejected struck
through over dashes; not reached struck through over dots and dimmed; the target's own tokens stand between two lines;
pending has dots alone. The contrast of each is checked by a test: text at least 7:1, lines at least 6:1.
"""

from dataclasses import dataclass

from PySide6.QtCore import QObject, QSize, Qt, Signal, Slot
from PySide6.QtGui import QBrush, QColor, QPainter, QPaintEvent, QPalette, QTextCharFormat, QTextCursor, QTextDocument
from PySide6.QtWidgets import QApplication, QSizePolicy, QWidget

from draftlight.engine.events import TokenFate
from draftlight.settings import ColorScheme, Highlight, Palette

PALETTE_NAMES = {
    Palette.TEXTBOOK: "Textbook green and red",
    Palette.SAFE: "Safe for colour-blind eyes",
    Palette.SHAPES: "Shapes only",
}
SCHEME_NAMES = {
    ColorScheme.SYSTEM: "Follow the system",
    ColorScheme.LIGHT: "Light",
    ColorScheme.DARK: "Dark",
}


@dataclass(frozen=True, slots=True)
class SchemeColours:
    """The colours of one scheme, as #rrggbb. `sunken` lies behind lists and bars, `raised` behind what is typed."""

    window: str
    base: str
    raised: str
    text: str
    dim: str
    border: str
    accent: str
    accent_text: str
    selection: str
    warning: str
    warning_fill: str


LIGHT = SchemeColours(
    window="#f3f4f7",
    base="#ffffff",
    raised="#f3f4f8",
    text="#1b1d22",
    dim="#505560",
    border="#d3d7de",
    accent="#2f4fc4",
    accent_text="#ffffff",
    selection="#cfd9ff",
    warning="#7a4300",
    warning_fill="#fff1d9",
)
DARK = SchemeColours(
    window="#15171a",
    base="#1b1d21",
    raised="#25282e",
    text="#f1f2f4",
    dim="#b0b5bf",
    border="#383c44",
    accent="#9db0ff",
    accent_text="#10131c",
    selection="#3a4a86",
    warning="#ffcf8a",
    warning_fill="#3a2c14",
)


@dataclass(frozen=True, slots=True)
class FateColours:
    """Fill behind a token (None: none), the colour of its underline, and of its text."""

    fill: str | None
    line: str
    text: str


_TARGET_LIGHT = FateColours("#dfe3ff", "#3346c0", LIGHT.text)
_TARGET_DARK = FateColours("#2b3270", "#aab6ff", "#ffffff")
# accepted, rejected and the target's own tokens, light and dark; ours, but SAFE, whose distances hold for each kind of
# colour blindness
_HUES = {
    (Palette.TEXTBOOK, False): (
        FateColours("#bdeec1", "#14692a", LIGHT.text),
        FateColours("#ffc1bb", "#a4161a", LIGHT.text),
        _TARGET_LIGHT,
    ),
    (Palette.TEXTBOOK, True): (
        FateColours("#14501f", "#5fdd7d", "#ffffff"),
        FateColours("#7e1c20", "#ff9d97", "#ffffff"),
        _TARGET_DARK,
    ),
    (Palette.SAFE, False): (
        FateColours("#cdf3e6", "#00705a", LIGHT.text),
        FateColours("#ffb894", "#9c2f00", LIGHT.text),
        _TARGET_LIGHT,
    ),
    (Palette.SAFE, True): (
        FateColours("#0d4034", "#3ddbb0", "#ffffff"),
        FateColours("#8a3d16", "#ffa066", "#ffffff"),
        _TARGET_DARK,
    ),
    (Palette.SHAPES, False): (FateColours(None, LIGHT.text, LIGHT.text),) * 3,
    (Palette.SHAPES, True): (FateColours(None, DARK.text, DARK.text),) * 3,
}

_UNDERLINES = {
    TokenFate.ACCEPTED: QTextCharFormat.UnderlineStyle.SingleUnderline,
    TokenFate.REJECTED: QTextCharFormat.UnderlineStyle.DashUnderline,
    TokenFate.NOT_REACHED: QTextCharFormat.UnderlineStyle.DotLine,
    TokenFate.CORRECTION: QTextCharFormat.UnderlineStyle.SingleUnderline,
    TokenFate.BONUS: QTextCharFormat.UnderlineStyle.WaveUnderline,
    TokenFate.PENDING: QTextCharFormat.UnderlineStyle.DotLine,
    TokenFate.PLAIN: QTextCharFormat.UnderlineStyle.NoUnderline,
}

FATE_NAMES = {
    TokenFate.ACCEPTED: "accepted",
    TokenFate.REJECTED: "rejected",
    TokenFate.NOT_REACHED: "not reached",
    TokenFate.CORRECTION: "correction",
    TokenFate.BONUS: "bonus",
    TokenFate.PENDING: "pending",
    TokenFate.PLAIN: "plain",
}
FATE_MEANINGS = {
    TokenFate.ACCEPTED: "drafted, and the target chose the same",
    TokenFate.REJECTED: "drafted; the first that the target did not choose",
    TokenFate.NOT_REACHED: "drafted after a rejection; never judged",
    TokenFate.CORRECTION: "the target's own token in place of a rejected one",
    TokenFate.BONUS: "the target's own token after a fully accepted draft",
    TokenFate.PENDING: "drafted, not yet verified",
    TokenFate.PLAIN: "the target's own token in a round without a draft",
}


def scheme_colours(*, dark: bool) -> SchemeColours:
    """Return the window's colours."""
    return DARK if dark else LIGHT


def fate_colours(palette: Palette, fate: TokenFate, *, dark: bool) -> FateColours:
    """Return the colours of a token of that fate."""
    accepted, rejected, target = _HUES[palette, dark]
    scheme = scheme_colours(dark=dark)
    if fate is TokenFate.ACCEPTED:
        return accepted
    if fate is TokenFate.REJECTED:
        return rejected
    if fate in (TokenFate.CORRECTION, TokenFate.BONUS):
        return target
    if fate is TokenFate.NOT_REACHED:
        return FateColours(None, scheme.dim, scheme.dim)
    return FateColours(None, scheme.text, scheme.text)


def token_format(palette: Palette, fate: TokenFate, *, dark: bool) -> QTextCharFormat:
    """Return how a token of that fate is drawn. Qt has no double underline: a line above stands in for the second."""
    colours = fate_colours(palette, fate, dark=dark)
    drawn = QTextCharFormat()
    drawn.setForeground(QBrush(QColor(colours.text)))
    if colours.fill is not None:
        drawn.setBackground(QBrush(QColor(colours.fill)))
    drawn.setUnderlineStyle(_UNDERLINES[fate])
    drawn.setUnderlineColor(QColor(colours.line))
    drawn.setFontStrikeOut(fate in (TokenFate.REJECTED, TokenFate.NOT_REACHED))
    drawn.setFontOverline(fate in (TokenFate.CORRECTION, TokenFate.BONUS))
    return drawn


class Theme(QObject):
    """The look in force; says when it changed."""

    changed = Signal()

    def __init__(self, application: QApplication) -> None:
        """Follow the desktop until told otherwise."""
        super().__init__(application)
        self._application = application
        self._scheme = ColorScheme.SYSTEM
        self.palette = Palette.TEXTBOOK
        self.dark = False
        self.colours = LIGHT
        self.formats: dict[TokenFate, QTextCharFormat] = {}
        application.setStyle("Fusion")
        application.styleHints().colorSchemeChanged.connect(self._follow)

    def set_look(self, scheme: ColorScheme, palette: Palette) -> None:
        """Take these choices and repaint everything."""
        self._scheme = scheme
        self.palette = palette
        hints = self._application.styleHints()
        if scheme is ColorScheme.SYSTEM:
            hints.unsetColorScheme()
        else:
            hints.setColorScheme(Qt.ColorScheme.Dark if scheme is ColorScheme.DARK else Qt.ColorScheme.Light)
        self._apply()

    @Slot()
    def _follow(self) -> None:
        if self._scheme is ColorScheme.SYSTEM:
            self._apply()

    def _apply(self) -> None:
        if self._scheme is ColorScheme.SYSTEM:
            self.dark = self._application.styleHints().colorScheme() is Qt.ColorScheme.Dark
        else:
            self.dark = self._scheme is ColorScheme.DARK
        self.colours = scheme_colours(dark=self.dark)
        self.formats = {fate: token_format(self.palette, fate, dark=self.dark) for fate in TokenFate}
        self._application.setPalette(_widget_palette(self.colours))
        self._application.setStyleSheet(_style_sheet(self.colours))
        self.changed.emit()


def _widget_palette(colours: SchemeColours) -> QPalette:
    roles = {
        QPalette.ColorRole.Window: colours.window,
        QPalette.ColorRole.WindowText: colours.text,
        QPalette.ColorRole.Base: colours.base,
        QPalette.ColorRole.AlternateBase: colours.raised,
        QPalette.ColorRole.Text: colours.text,
        QPalette.ColorRole.Button: colours.raised,
        QPalette.ColorRole.ButtonText: colours.text,
        QPalette.ColorRole.BrightText: colours.accent_text,
        QPalette.ColorRole.ToolTipBase: colours.raised,
        QPalette.ColorRole.ToolTipText: colours.text,
        QPalette.ColorRole.PlaceholderText: colours.dim,
        QPalette.ColorRole.Highlight: colours.selection,
        QPalette.ColorRole.HighlightedText: colours.text,
        QPalette.ColorRole.Link: colours.accent,
        QPalette.ColorRole.LinkVisited: colours.accent,
        QPalette.ColorRole.Accent: colours.accent,
        QPalette.ColorRole.Light: colours.border,
        QPalette.ColorRole.Midlight: colours.border,
        QPalette.ColorRole.Mid: colours.border,
        QPalette.ColorRole.Dark: colours.border,
        QPalette.ColorRole.Shadow: colours.border,
    }
    palette = QPalette()
    for role, colour in roles.items():
        palette.setColor(role, QColor(colour))
    for role in (QPalette.ColorRole.Text, QPalette.ColorRole.ButtonText, QPalette.ColorRole.WindowText):
        palette.setColor(QPalette.ColorGroup.Disabled, role, QColor(colours.dim))
    return palette


def _style_sheet(colours: SchemeColours) -> str:
    """Return the few things that a palette cannot say: corners, spacing, and what is the main button."""
    return _STYLE_SHEET.format(**{name: getattr(colours, name) for name in colours.__dataclass_fields__})


_STYLE_SHEET = """
QToolTip {{ background: {raised}; color: {text}; border: 1px solid {border}; padding: 5px 7px; }}
QPushButton, QToolButton {{
    background: {base}; color: {text}; border: 1px solid {border}; border-radius: 7px; padding: 6px 12px;
}}
QPushButton:hover, QToolButton:hover {{ border-color: {accent}; }}
QPushButton:focus, QToolButton:focus {{ border: 2px solid {accent}; padding: 5px 11px; }}
QPushButton:pressed, QToolButton:pressed {{ background: {selection}; }}
QPushButton:disabled, QToolButton:disabled {{ color: {dim}; background: {window}; }}
QPushButton#main {{ background: {accent}; color: {accent_text}; border-color: {accent}; font-weight: 600; }}
QPushButton#main:focus {{ border: 2px solid {text}; }}
QPushButton#main:disabled {{ background: {window}; color: {dim}; border-color: {border}; font-weight: 400; }}
QLineEdit {{
    background: {base}; color: {text}; border: 1px solid {border}; border-radius: 7px; padding: 4px 8px;
    selection-background-color: {selection}; selection-color: {text}; min-height: 20px;
}}
QLineEdit:hover {{ border-color: {accent}; }}
QLineEdit:focus {{ border: 2px solid {accent}; padding: 3px 7px; }}
QCheckBox {{ spacing: 7px; }}
QFrame#bar, QWidget#sidebar {{ background: {window}; }}
QFrame#card {{ background: {raised}; border: 1px solid {dim}; border-radius: 12px; }}
QFrame#composer {{ background: {base}; border: 1px solid {border}; border-radius: 12px; }}
QWidget#page {{ background: {base}; }}
QFrame#composer[focused="true"] {{ border: 2px solid {accent}; }}
QFrame#notice {{ background: {warning_fill}; border: 1px solid {warning}; border-radius: 8px; }}
QFrame#notice QLabel {{ color: {text}; }}
QPlainTextEdit#entry {{ background: transparent; border: none; }}
QLabel#dim {{ color: {dim}; }}
QLabel#title {{ font-weight: 600; }}
QListView#chats {{ background: transparent; border: none; outline: none; }}
QListView#chats::item {{ padding: 8px 10px; border-radius: 7px; margin: 1px 0; color: {text}; }}
QListView#chats::item:hover {{ background: {raised}; }}
QListView#chats::item:selected {{ background: {selection}; color: {text}; }}
QProgressBar {{ background: {raised}; border: 1px solid {border}; border-radius: 5px; max-height: 10px; }}
QProgressBar::chunk {{ background: {accent}; border-radius: 4px; }}
QSplitter::handle {{ background: {border}; }}
QMenuBar {{ background: {window}; color: {text}; padding: 2px 6px; }}
QMenuBar::item {{ padding: 4px 9px; border-radius: 5px; }}
QMenuBar::item:selected {{ background: {selection}; }}
QMenu {{ background: {base}; color: {text}; border: 1px solid {border}; padding: 5px; }}
QMenu::item {{ padding: 6px 26px 6px 22px; border-radius: 5px; }}
QMenu::item:selected {{ background: {selection}; }}
QMenu::item:disabled {{ color: {dim}; }}
QMenu::separator {{ height: 1px; background: {border}; margin: 5px 8px; }}
QScrollBar:vertical {{ background: transparent; width: 12px; margin: 2px; }}
QScrollBar::handle:vertical {{ background: {border}; border-radius: 4px; min-height: 36px; }}
QScrollBar::handle:vertical:hover {{ background: {dim}; }}
QScrollBar::add-line, QScrollBar::sub-line {{ height: 0; width: 0; }}
QScrollBar::add-page, QScrollBar::sub-page {{ background: transparent; }}
"""

_LEGEND = (
    TokenFate.ACCEPTED,
    TokenFate.REJECTED,
    TokenFate.NOT_REACHED,
    TokenFate.CORRECTION,
    TokenFate.BONUS,
    TokenFate.PENDING,
)


class Legend(QWidget):
    """One line that shows each fate as it is drawn in the text: under ACCEPTED there is but one."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        """Draw the theme's formats, and again whenever they change."""
        super().__init__(parent)
        self._theme = theme
        self._fates: tuple[TokenFate, ...] = _LEGEND
        self._document = QTextDocument(self)
        self._document.setDocumentMargin(2)
        self.setAccessibleName("What the marks mean")
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        theme.changed.connect(self.draw_again)
        self.draw_again()

    def show_mode(self, mode: Highlight) -> None:
        """Name what this mode marks; where it marks nothing there is no legend."""
        self._fates = (TokenFate.ACCEPTED,) if mode is Highlight.ACCEPTED else _LEGEND
        self.setVisible(mode is not Highlight.OFF)
        self.draw_again()

    @Slot()
    def draw_again(self) -> None:
        """Lay the line out in the theme's present formats."""
        self._document.clear()
        self._document.setDefaultFont(self.font())
        cursor = QTextCursor(self._document)
        meanings = [f"{FATE_NAMES[fate]}: {FATE_MEANINGS[fate]}" for fate in self._fates]
        self.setAccessibleDescription("; ".join(meanings))
        self.setToolTip("\n".join(meanings))
        for place, fate in enumerate(self._fates):
            cursor.insertText("   " if place else "", QTextCharFormat())
            cursor.insertText(f" {FATE_NAMES[fate]} ", self._theme.formats.get(fate, QTextCharFormat()))
        self.updateGeometry()
        self.update()

    def sizeHint(self) -> QSize:
        """Return the size of the line."""
        return self._document.size().toSize() + QSize(1, 0)

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Draw the line."""
        self._document.drawContents(QPainter(self))
