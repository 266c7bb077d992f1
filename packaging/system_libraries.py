"""What Qt and the tests need from the operating system: found by asking, named as Debian's packages."""

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

import steps

# What a window loads: the X11 platform plugin, and what every program with windows links.
QT_FILES = (
    "Qt/plugins/platforms/libqxcb.so",
    "Qt/plugins/platforms/libqoffscreen.so",
    "Qt/lib/libQt6Gui.so.6",
    "Qt/lib/libQt6Widgets.so.6",
    "Qt/lib/libQt6Svg.so.6",
)
QT_WAYLAND_FILE = "Qt/plugins/platforms/libqwayland.so"

DEBIAN_PACKAGES = {
    "libdbus-1.so.3": "libdbus-1-3",
    "libEGL.so.1": "libegl1",
    "libfontconfig.so.1": "libfontconfig1",
    "libfreetype.so.6": "libfreetype6",
    "libGL.so.1": "libgl1",
    "libglib-2.0.so.0": "libglib2.0-0",
    "libgthread-2.0.so.0": "libglib2.0-0",
    "libOpenGL.so.0": "libopengl0",
    "libwayland-client.so.0": "libwayland-client0",
    "libwayland-cursor.so.0": "libwayland-cursor0",
    "libwayland-egl.so.1": "libwayland-egl1",
    "libX11.so.6": "libx11-6",
    "libX11-xcb.so.1": "libx11-xcb1",
    "libxcb.so.1": "libxcb1",
    "libxcb-cursor.so.0": "libxcb-cursor0",
    "libxcb-glx.so.0": "libxcb-glx0",
    "libxcb-icccm.so.4": "libxcb-icccm4",
    "libxcb-image.so.0": "libxcb-image0",
    "libxcb-keysyms.so.1": "libxcb-keysyms1",
    "libxcb-randr.so.0": "libxcb-randr0",
    "libxcb-render.so.0": "libxcb-render0",
    "libxcb-render-util.so.0": "libxcb-render-util0",
    "libxcb-shape.so.0": "libxcb-shape0",
    "libxcb-shm.so.0": "libxcb-shm0",
    "libxcb-sync.so.1": "libxcb-sync1",
    "libxcb-util.so.1": "libxcb-util1",
    "libxcb-xfixes.so.0": "libxcb-xfixes0",
    "libxcb-xkb.so.1": "libxcb-xkb1",
    "libxkbcommon.so.0": "libxkbcommon0",
    "libxkbcommon-x11.so.0": "libxkbcommon-x11-0",
    "libz.so.1": "zlib1g",
    "libzstd.so.1": "libzstd1",
}

# What some checks need: how it shows that it is there, its Debian package, the checks that are skipped without it.
WINDOW_CHECKS = "the checks of the running window"
SCRIPT_CHECKS = "the checks of other scripts and emoji"
TEST_TOOLS = (
    ("Xvfb", "xvfb", WINDOW_CHECKS),
    ("xdotool", "xdotool", WINDOW_CHECKS),
    ("import", "imagemagick", WINDOW_CHECKS),
    ("/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf", "fonts-dejavu-core", WINDOW_CHECKS),
    ("/usr/share/fonts/opentype/noto/NotoSansCJK-Regular.ttc", "fonts-noto-cjk", SCRIPT_CHECKS),
    ("/usr/share/fonts/truetype/noto/NotoColorEmoji.ttf", "fonts-noto-color-emoji", SCRIPT_CHECKS),
)


def not_found(ldd_output: str) -> list[str]:
    """Return the libraries that the dynamic loader misses, sorted, from what `ldd FILE...` printed."""
    lines = (line.split() for line in ldd_output.splitlines())
    return sorted({words[0] for words in lines if words[1:] == ["=>", "not", "found"]})


def missing_for_qt(site_packages: Path, *, wayland: bool) -> list[str]:
    """Return the system libraries that Qt misses here.

    Args:
        site_packages: where PySide6 is installed.
        wayland: whether the window may open on a Wayland display.

    """
    names = (*QT_FILES, QT_WAYLAND_FILE) if wayland else QT_FILES
    files = [str(path) for name in names if (path := site_packages / "PySide6" / name).exists()]
    ldd = shutil.which("ldd")
    if ldd is None or not files:
        return []
    asked = subprocess.run([ldd, *files], capture_output=True, text=True, check=False)  # noqa: S603 - files of ours
    return not_found(asked.stdout)


def debian_packages(libraries: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the Debian packages of some libraries, and the libraries whose package is not known."""
    libraries = list(libraries)
    packages = sorted({DEBIAN_PACKAGES[name] for name in libraries if name in DEBIAN_PACKAGES})
    return packages, [name for name in libraries if name not in DEBIAN_PACKAGES]


def missing_test_tools() -> list[tuple[str, str]]:
    """Return package and skipped checks of each tool that the tests would use and that is not there."""
    return [
        (package, checks)
        for name, package, checks in TEST_TOOLS
        if not (Path(name).exists() if name.startswith("/") else shutil.which(name))
    ]


def is_debian() -> bool:
    """Say whether packages are installed with apt here."""
    return shutil.which("apt-get") is not None and Path("/etc/debian_version").exists()


def may_install() -> bool:
    """Say whether this process may install Debian packages."""
    return is_debian() and hasattr(os, "geteuid") and os.geteuid() == 0


def command(packages: Iterable[str]) -> str:
    """Return the command with which a person installs these packages."""
    return f"sudo apt-get install {' '.join(sorted(set(packages)))}"


def install(runner: steps.StepRunner, packages: Iterable[str], purpose: str, environ: Mapping[str, str]) -> None:
    """Install Debian packages.

    Args:
        runner: runs apt-get.
        packages: their names.
        purpose: what they are for.
        environ: the environment variables.

    Raises:
        steps.SetupError: apt-get failed.

    """
    environ = {**environ, "DEBIAN_FRONTEND": "noninteractive"}
    wanted = sorted(set(packages))
    folder = Path("/")
    runner.run(
        f"Reading Debian's list of packages, for {purpose}", "apt-update", ["apt-get", "update"], folder, environ
    )
    runner.run(
        f"Installing {', '.join(wanted)} (usually under a minute)",
        "apt-install",
        ["apt-get", "install", "--yes", "--no-install-recommends", *wanted],
        folder,
        environ,
    )
