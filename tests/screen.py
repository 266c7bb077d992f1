"""A display of its own (Xvfb): what is on it, and the keys and clicks of a person before it."""

import ctypes
import ctypes.util
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from program_process import wait_until

WIDTH, HEIGHT = 1280, 800


def need_display_tools() -> None:
    """Skip where the tools are missing; on the build machine that is a failure."""
    missing = [name for name in ("Xvfb", "xdotool") if shutil.which(name) is None]
    if sys.platform != "linux" or missing:
        message = f"the window is tested on Linux with Xvfb and xdotool (missing: {', '.join(missing) or 'Linux'})"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)


class Screen:
    """A running Xvfb. Its frame buffer is a file, so looking costs a millisecond and disturbs nobody."""

    def __init__(self, folder: Path) -> None:
        """Start on a free display number, with the frame buffer in `folder`."""
        reading, writing = os.pipe()
        options = f"-displayfd {writing} -noreset -screen 0 {WIDTH}x{HEIGHT}x24 -nolisten tcp".split()
        with (folder / "xvfb.log").open("wb") as log:
            self._server = subprocess.Popen(  # noqa: S603 - see the next line
                ["Xvfb", *options, "-fbdir", str(folder)],  # noqa: S607 - a program found on the PATH
                pass_fds=(writing,),
                stdout=log,
                stderr=log,
            )
        os.close(writing)
        with os.fdopen(reading) as announced:
            self.display = f":{announced.readline().strip()}"
        self._frame_buffer = folder / "Xvfb_screen0"

    def close(self) -> None:
        """End the display."""
        self._server.terminate()
        self._server.wait(timeout=10)

    def xdotool(self, *arguments: str) -> str:
        """Run xdotool on this display and return what it says."""
        done = subprocess.run(  # noqa: S603 - a program found on the PATH
            ["xdotool", *arguments],  # noqa: S607 - see above
            capture_output=True,
            encoding="utf-8",
            env={**os.environ, "DISPLAY": self.display},
            timeout=30,
            check=False,
        )
        return done.stdout.strip()

    def window_of(self, process: "subprocess.Popen[str]") -> str:
        """Wait for the process's largest window and give it the keyboard; return its number."""

        def found() -> str:
            assert process.poll() is None, f"the program ended with {process.returncode}"
            numbers = self.xdotool("search", "--onlyvisible", "--pid", str(process.pid)).split()
            return max(numbers, key=self._area, default="")

        number = wait_until(found, "the window")
        self.xdotool("windowfocus", number)
        return number

    def type(self, text: str) -> None:
        """Type into what has the keyboard."""
        self.xdotool("type", "--delay", "5", text)

    def key(self, name: str) -> None:
        """Press and release a key or a combination, such as Return or ctrl+n."""
        self.xdotool("key", name)

    def pixels(self) -> NDArray[np.uint8]:
        """What is on the screen: height x width x (red, green, blue)."""
        content = self._frame_buffer.read_bytes()
        header = struct.unpack(">25I", content[:100])
        header_size, width, height, bytes_per_line, n_colours = (header[at] for at in (0, 4, 5, 12, 19))
        start = header_size + 12 * n_colours
        lines = np.frombuffer(content, np.uint8, height * bytes_per_line, start).reshape(height, bytes_per_line)
        return lines.reshape(height, -1, 4)[:, :width, 2::-1]

    def count(self, colour: str) -> int:
        """How many pixels are exactly #rrggbb."""
        wanted = np.frombuffer(bytes.fromhex(colour.removeprefix("#")), np.uint8)
        return int((self.pixels() == wanted).all(axis=2).sum())

    def ask_to_close(self, window: str) -> None:
        """Do what a click on the window's close button does: send WM_DELETE_WINDOW."""
        x11 = ctypes.CDLL(ctypes.util.find_library("X11") or "libX11.so.6")
        x11.XOpenDisplay.restype = ctypes.c_void_p
        x11.XInternAtom.restype = ctypes.c_ulong
        display = ctypes.c_void_p(x11.XOpenDisplay(self.display.encode()))
        protocols, delete = (x11.XInternAtom(display, name, 0) for name in (b"WM_PROTOCOLS", b"WM_DELETE_WINDOW"))
        number = int(window)
        # XClientMessageEvent: type 33, serial, send_event, display, window, message_type, format 32, five longs
        event = struct.pack("@iLiPLLi5l", 33, 0, 1, display.value, number, protocols, 32, delete, 0, 0, 0, 0)
        x11.XSendEvent(display, ctypes.c_ulong(number), 0, ctypes.c_long(0), event.ljust(192, b"\0"))
        x11.XCloseDisplay(display)

    def _area(self, number: str) -> int:
        shape = dict(
            line.split("=") for line in self.xdotool("getwindowgeometry", "--shell", number).splitlines() if "=" in line
        )
        return int(shape.get("WIDTH", 0)) * int(shape.get("HEIGHT", 0))
