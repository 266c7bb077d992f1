"""One window for one folder of chats: a lock file says who has it, a local socket asks that one to come forward."""

import hashlib
from pathlib import Path

from PySide6.QtCore import QLockFile, QObject, Signal, Slot
from PySide6.QtNetwork import QLocalServer, QLocalSocket

from draftlight.paths import make_folder

_ANSWER_MS = 2000


class SingleInstance(QObject):
    """Holds the lock until released; `raised` says that another start asked for the window."""

    raised = Signal()

    def __init__(self, folder: Path) -> None:
        """Stand for the folder of chats."""
        super().__init__()
        self._folder = make_folder(folder)
        self._lock = QLockFile(str(folder / "window.lock"))
        self._lock.setStaleLockTime(0)  # stale once its process is gone, however old
        self._name = "draftlight-" + hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]
        self._server = QLocalServer(self)
        self._server.setSocketOptions(QLocalServer.SocketOption.UserAccessOption)
        self._server.newConnection.connect(self._on_connection)

    def acquire(self) -> bool:
        """Take the lock, or ask its holder to come forward and return False.

        A folder that cannot hold a lock file (read-only) is used without one.
        """
        if self._lock.tryLock(0):
            QLocalServer.removeServer(self._name)  # left behind by a crash
            self._server.listen(self._name)
            return True
        if self._lock.error() is not QLockFile.LockError.LockFailedError:
            return True
        socket = QLocalSocket()
        socket.connectToServer(self._name)
        if socket.waitForConnected(_ANSWER_MS):
            socket.disconnectFromServer()
        return False

    def release(self) -> None:
        """Let the next start have the folder."""
        self._server.close()
        self._lock.unlock()

    @Slot()
    def _on_connection(self) -> None:
        connection = self._server.nextPendingConnection()
        if connection is not None:
            connection.disconnected.connect(connection.deleteLater)
            connection.disconnectFromServer()
        self.raised.emit()
