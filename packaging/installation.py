"""The set-up's steps in their order: .venv, llama.cpp, the project, Qt's system libraries, the starter target.

Each finished step is noted with what it depended on, so that a cut-off set-up goes on where it was. What cannot be
trusted after a cut (an environment that pip was writing) is made anew.
"""

import importlib.util
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import bootstrap
import starter
import steps
import system_libraries
import wheels

MB = 1_000_000
# Free space that the first start needs, measured and rounded up: .venv (420 MB; for the tests 1.7 GB, or 5.5 GB where
# torch brings its libraries for graphics cards along), and what pip downloads for it.
ROOM_APP = 1_200 * MB
ROOM_TESTS = 9_000 * MB
ROOM_COMPILE = 800 * MB


def run(extras: Sequence[str]) -> int:
    """Do every step that is not done yet and return 0, or say what went wrong and return the exit status.

    Args:
        extras: the optional dependencies to install; with any, the tests' tools are looked for too.

    """
    screen = steps.Screen()
    try:
        with steps.stop_on_signals(), steps.Lock(bootstrap.STATE / "lock", screen) as lock:
            Installation(screen, lock, extras).run()
    except steps.SetupError as error:
        tell(screen, error)
        return 1
    except (KeyboardInterrupt, steps.Interrupted) as interrupt:
        screen.say("Stopped. Finished steps are kept: the next start goes on from here.")
        return 130 if isinstance(interrupt, KeyboardInterrupt) else 143
    except OSError as error:
        happened = steps.diagnose(str(error))
        remedy = happened[1] if happened else "Mend that, then start again: finished steps are not repeated."
        tell(screen, steps.SetupError(f"The set-up cannot work here: {error}.", remedy))
        return 1
    return 0


def tell(screen: steps.Screen, error: steps.SetupError) -> None:
    """Say what went wrong: the log's tail, the sentence, the remedy."""
    if error.log:
        screen.say("\n".join(f"  | {line}" for line in steps.tail(error.log).splitlines()))
        screen.say(f"The whole output: {error.log}")
    screen.say(f"\n{error.sentence}")
    if error.remedy:
        screen.say(error.remedy)


def check_room(folder: Path, needed: int) -> None:
    """Refuse to begin what the disk cannot hold.

    Args:
        folder: a folder on the disk.
        needed: bytes.

    Raises:
        steps.SetupError: there is less.

    """
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise steps.SetupError(
            f"The disk of {folder} is nearly full: {free // MB:,} MB are free, about {needed // MB:,} MB are needed.",
            "Make room there, then start again.",
        )


class Installation:
    """One pass over the steps.

    Args:
        screen: where progress is shown.
        lock: held for the whole pass.
        extras: the optional dependencies to install.

    """

    def __init__(self, screen: steps.Screen, lock: steps.Lock, extras: Sequence[str]) -> None:
        """Read what is done already."""
        self.screen = screen
        self.extras = sorted(extras)
        keep_open = () if os.name == "nt" else (lock.fileno(),)
        self.runner = steps.StepRunner(screen, bootstrap.STATE / "logs", keep_open)
        self.stamps = bootstrap.Stamps(bootstrap.STATE / "stamps.json")
        # What pip.conf says holds, except that nothing goes to the user's own packages.
        self.environ = {**os.environ, "PIP_USER": "0", **bootstrap.build_variables(self.stamps, os.environ)}
        # -I: neither PYTHONPATH nor the folder it runs in has a say in what is installed.
        self.pip = [str(bootstrap.PYTHON), "-I", "-m", "pip", "--disable-pip-version-check"]

    def run(self) -> None:
        """Do the steps that are not done.

        Raises:
            steps.SetupError: one failed.

        """
        wheels.check_quotes(self.environ)
        self.make_venv()
        self.install_project()
        self.look_for_system_libraries()
        if self.extras:
            self.look_for_test_tools()
        self.fetch_target()

    def make_venv(self) -> None:
        """Make .venv, anew if it was cut off, moved, or its Python is gone."""
        whole = bootstrap.PYTHON.exists() and self.stamps.get("venv") == bootstrap.venv_digest()
        if whole and not self.stamps.get("installing"):
            return
        self.screen.say(
            "Setting Draftlight up in this folder. That happens once; Ctrl-C stops it, a new start goes on."
        )
        check_room(bootstrap.ROOT, ROOM_TESTS if self.extras else ROOM_APP)
        check_room(Path(tempfile.gettempdir()), ROOM_COMPILE)
        self.require_venv_module()
        self.require_compiler()
        leftovers = [path for path in bootstrap.VENV.iterdir() if path != bootstrap.STATE]
        if leftovers:
            self.screen.say("The .venv found here is unfinished or belongs elsewhere; making it anew.")
        self.stamps.note(venv=None, installed=None, extras=None, wheel=None, installing=None)
        for path in leftovers:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        self.runner.run(
            "Making .venv (usually 5 to 20 seconds)",
            "venv",
            [sys.executable, "-I", "-m", "venv", str(bootstrap.VENV)],
            bootstrap.ROOT,
            self.environ,
        )
        self.stamps.note(venv=bootstrap.venv_digest())

    def require_venv_module(self) -> None:
        """Make sure that this Python can make an environment with pip in it."""
        if importlib.util.find_spec("venv") and importlib.util.find_spec("ensurepip"):
            return
        package = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
        if system_libraries.may_install():
            system_libraries.install(self.runner, [package], "virtual environments", self.environ)
            return
        raise steps.SetupError(
            "This Python cannot make a virtual environment: its venv or ensurepip module is missing.",
            f"Install it (Debian and Ubuntu: sudo apt-get install {package}), then start again.",
        )

    def require_compiler(self) -> None:
        """Say at once, not after minutes, that there is no compiler; install it where that is allowed."""
        if wheels.find_compiler(self.environ) is None and system_libraries.may_install():
            system_libraries.install(self.runner, ["gcc", "g++"], "compiling llama.cpp", self.environ)
        if wheels.find_compiler(self.environ) is None:
            raise steps.SetupError(*wheels.NO_COMPILER)

    def install_project(self) -> None:
        """Install llama-cpp-python built for this machine, then the project with its dependencies, editable."""
        wanted = bootstrap.installed_digest(self.stamps, os.environ)
        noted = self.stamps.get("extras")
        present = noted if isinstance(noted, list) and self.stamps.get("installed") == wanted else []
        if self.stamps.get("installed") == wanted and set(self.extras) <= set(present):
            return
        extras = sorted({*self.extras, *present})
        key, wheel = wheels.provide(self.runner, self.pip, self.environ)
        # A kill from here on leaves an environment that nobody can trust.
        self.stamps.note(installing=True)
        try:
            if self.stamps.get("wheel") != key:
                # By force: for pip, another build of the same version is the same.
                command = [*self.pip, "install", "--no-deps", "--force-reinstall", str(wheel)]
                title = "Installing llama.cpp (usually 5 seconds)"
                self.runner.run(title, "install-llama-cpp", command, bootstrap.ROOT, self.environ)
                self.stamps.note(wheel=key)
            project = f".[{','.join(extras)}]" if extras else "."
            usual = "usually 2 to 5 minutes, most of it for torch, up to 3 GB" if extras else "usually 1 to 2 minutes"
            self.runner.run(
                f"Installing Draftlight and what it needs ({usual})",
                "install",
                [*self.pip, "install", "--editable", project],
                bootstrap.ROOT,
                self.environ,
            )
        except steps.SetupError:
            self.stamps.note(installing=None)  # pip has ended by itself and left things whole
            raise
        self.stamps.note(
            installing=None,
            installed=wanted,
            extras=extras,
            system_libraries=None,
            build_variables=bootstrap.build_variables(self.stamps, os.environ),
        )

    def look_for_system_libraries(self) -> None:
        """Find what Qt misses on Linux; install it where that is allowed, else say how. Never a reason to stop."""
        if sys.platform != "linux" or not (self.extras or bootstrap.opens_a_window(os.environ)):
            self.stamps.note(system_libraries=sys.platform != "linux" or self.stamps.get("system_libraries"))
            return
        missing = self.missing_for_qt()
        packages, unknown = system_libraries.debian_packages(missing)
        if packages and system_libraries.may_install():
            self.try_to_install(packages, "Qt's windows")
            missing = self.missing_for_qt()
            packages, unknown = system_libraries.debian_packages(missing)
        if missing:
            self.screen.say(f"Qt misses system libraries and cannot open a window: {', '.join(missing)}")
            if packages and system_libraries.is_debian():
                self.screen.say(f"Install them with: {system_libraries.command(packages)}")
            if unknown or not system_libraries.is_debian():
                self.screen.say("Install the packages of your system that hold these libraries.")
        self.stamps.note(system_libraries=not missing or None)

    def missing_for_qt(self) -> list[str]:
        """Return the system libraries that Qt misses now."""
        site_packages = next(bootstrap.VENV.glob("lib/python*/site-packages"))
        return system_libraries.missing_for_qt(site_packages, wayland=bool(os.environ.get("WAYLAND_DISPLAY")))

    def look_for_test_tools(self) -> None:
        """Find what the checks of the window need; install it where that is allowed, else say what is skipped."""
        if sys.platform == "linux":
            missing = system_libraries.missing_test_tools()
            if missing and system_libraries.may_install():
                self.try_to_install([package for package, _ in missing], "the checks of the running window")
                missing = system_libraries.missing_test_tools()
            for checks in sorted({checks for _, checks in missing}):
                absent = [package for package, needed_for in missing if needed_for == checks]
                self.screen.say(f"Skipped will be {checks}. To run them: {system_libraries.command(absent)}")
            if missing:
                self.stamps.note(test_tools=None)
                return
        self.stamps.note(test_tools=True)

    def try_to_install(self, packages: Sequence[str], purpose: str) -> None:
        """Install Debian packages that are good to have; a failure is told and borne."""
        try:
            system_libraries.install(self.runner, packages, purpose, self.environ)
        except steps.SetupError as error:
            tell(self.screen, error)

    def fetch_target(self) -> None:
        """Have the starter target in models/, verified. The program also starts without; the tests do not."""
        target = bootstrap.STARTER_TARGET
        if self.stamps.get("target") == bootstrap.target_identity() is not None:
            return
        try:
            if not starter.is_genuine(target):
                starter.fetch(self.runner, self.pip, bootstrap.STATE / "download", target, self.environ)
        except steps.SetupError as error:
            if self.extras:
                raise
            tell(self.screen, error)
            self.screen.say("Draftlight starts without the starter model, and tries again in an hour.")
            self.screen.say("To try again at once: python3 app --setup-only")
            self.stamps.note(target=None, target_failed_at=time.time())
            return
        self.stamps.note(target=bootstrap.target_identity(), target_failed_at=None)
