"""The list of shortcuts, as a box over the window."""

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QMessageBox, QWidget

_SHORTCUTS = """Enter\tsend
Shift+Enter\tnew line
Esc\tstop the answer
Ctrl+N\tnew chat
Ctrl+R\tanswer the last question again
Ctrl+L\tgo to the message field
Ctrl+K\tsearch chats
Ctrl+B\tshow or hide the chats
Ctrl+G\tnext highlight mode
Ctrl+Shift+M\tchoose the target
Ctrl+O\topen a model file
Ctrl+Shift+L\tload the models again
Ctrl+Shift+D\tmake a draft model
Ctrl+Shift+C\tcopy the last answer
Ctrl+Q\tquit
Left, Right\tin the text: from token to token
Enter\tin the text: tell about the token
F2\trename the chat
Ctrl+Shift+Backspace\tdelete the chat
Ctrl+/\tthis list"""


def show_shortcuts(parent: QWidget) -> None:
    """Open the list over `parent`."""
    rows = "".join(
        f"<tr><td style='padding: 3px 22px 3px 0'><b>{keys}</b></td><td style='padding: 3px 0'>{what}</td></tr>"
        for keys, what in (line.split("\t") for line in _SHORTCUTS.splitlines())
    )
    box = QMessageBox(parent)
    box.setWindowTitle("Shortcuts")
    box.setTextFormat(Qt.TextFormat.RichText)
    box.setText(f"<table>{rows}</table>")
    box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    box.open()
