"""The window as a person meets it: the program in a display of its own, with keys pressed and pixels counted."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from draftlight.engine.events import TokenFate
from draftlight.settings import (
    ColorScheme,
    PairSettings,
    Palette,
    SamplingSettings,
    Settings,
    load_settings,
    save_settings,
)
from draftlight.ui.theme import fate_colours
from program_process import Program, wait_until
from screen import Screen, need_display_tools

pytestmark = [pytest.mark.e2e, pytest.mark.model]

COLOURED = (TokenFate.ACCEPTED, TokenFate.REJECTED, TokenFate.CORRECTION)
ENOUGH = 200  # pixels: a short word's fill has more


@pytest.fixture(scope="module")
def screen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Screen]:
    need_display_tools()
    screen = Screen(tmp_path_factory.mktemp("screen"))
    yield screen
    screen.close()


class Window:
    """One start of the window; typing goes to its message field."""

    def __init__(self, program: Program, screen: Screen, *arguments: str) -> None:
        self.program = program
        self.screen = screen
        self.process = program.start(*arguments, DISPLAY=screen.display, QT_QPA_PLATFORM="xcb")
        self.number = screen.window_of(self.process)

    def ask(self, text: str) -> None:
        """Type a message and press Enter until it is on disk: before the models are ready Enter sends nothing."""
        count = "SELECT count(*) FROM messages WHERE role = 'user'"
        before = self.program.rows(count)
        self.screen.key("ctrl+l")
        self.screen.type(text)

        def sent() -> bool:
            self.screen.key("Return")
            return self.program.rows(count) not in ([], [(0,)], before)

        wait_until(sent, "the message on disk")

    def colours(self) -> dict[TokenFate, int]:
        """Pixels in the fill of each coloured fate."""
        fills = {fate: fate_colours(Palette.TEXTBOOK, fate, dark=False).fill for fate in COLOURED}
        return {fate: self.screen.count(fill) for fate, fill in fills.items() if fill is not None}

    def settled_colours(self) -> dict[TokenFate, int]:
        """The same once two looks in a row agree."""
        seen = [self.colours()]

        def settled() -> dict[TokenFate, int] | None:
            seen.append(self.colours())
            return seen[-1] if seen[-1] == seen[-2] else None

        return wait_until(settled, "a screen that stands still")

    def close(self) -> None:
        """Click the close button, wait for the end, and expect a clean one that leaves no process."""
        self.screen.ask_to_close(self.number)
        assert self.process.wait(timeout=20) == 0, self.program.output(self.process)
        assert self.program.leftovers(self.process) == []


@pytest.fixture
def settings(program: Program, starter_target: Path, starter_draft: Path) -> Program:
    """Short greedy answers in the light scheme, on one thread: two would wait for each other on a busy machine."""
    pair = PairSettings(target=starter_target, draft=starter_draft, n_threads=1)
    chosen = Settings(
        sampling=SamplingSettings(temperature=0.0), max_new_tokens=60, color_scheme=ColorScheme.LIGHT, pair=pair
    )
    save_settings(chosen, program.home / "config" / "settings.toml")
    return program


def coloured(shown: dict[TokenFate, int], legend: dict[TokenFate, int]) -> bool:
    """Tell whether tokens of each fate are on the screen, not the legend of the colours that stands there before."""
    return all(count > ENOUGH and count != legend[fate] for fate, count in shown.items())


def answers(program: Program) -> list[tuple[str, str]]:
    return program.rows("SELECT status, text FROM messages WHERE role = 'assistant' ORDER BY id")


def test_an_answer_is_green_and_red_and_the_same_after_a_restart(settings: Program, screen: Screen) -> None:
    Window(settings, screen).close()  # from now on it opens in one place: dashes and waves begin at the same pixel
    window = Window(settings, screen)
    legend = window.settled_colours()
    window.ask("Tell me about the sea.")
    wait_until(lambda: [status for status, _ in answers(settings)] == ["complete"], "the answer on disk")
    shown = window.settled_colours()
    assert coloured(shown, legend), f"{shown}, before the answer {legend}"
    assert settings.rows("SELECT count(*) FROM rounds")[0][0] > 3
    window.close()

    again = Window(settings, screen)
    wait_until(lambda: again.colours() == shown, "the same colours after a restart")
    again.close()


def test_closing_while_an_answer_comes_ends_cleanly_and_keeps_it(settings: Program, screen: Screen) -> None:
    window = Window(settings, screen)
    window.ask("Write a long story about a lighthouse.")
    wait_until(lambda: settings.rows("SELECT 1 FROM messages WHERE role = 'assistant'"), "the answer's beginning")
    window.close()
    ((status, _),) = answers(settings)
    assert status in {"stopped", "complete"}


def test_a_second_start_raises_the_first_window_and_ends_with_0(settings: Program, screen: Screen) -> None:
    window = Window(settings, screen)
    second = settings.run(DISPLAY=screen.display, QT_QPA_PLATFORM="xcb")
    assert second.returncode == 0, second.stderr
    assert "already open" in second.stdout
    assert window.process.poll() is None
    window.close()


def test_a_killed_window_shows_its_partial_answer_in_colour_again(settings: Program, screen: Screen) -> None:
    chosen = load_settings(settings.home / "config" / "settings.toml").settings.changed(max_new_tokens=1_000)
    save_settings(chosen, settings.home / "config" / "settings.toml")
    window = Window(settings, screen)
    legend = window.settled_colours()
    window.ask("Write a long story about a lighthouse.")
    wait_until(lambda: any(len(text) > 100 for _, text in answers(settings)), "a part of the answer on disk")
    window.process.send_signal(signal.SIGKILL)
    window.process.wait()
    ((_, partial),) = answers(settings)

    again = Window(settings, screen)
    wait_until(lambda: coloured(again.settled_colours(), legend), "the colours of the partial answer")
    assert answers(settings) == [("interrupted", partial)]
    again.close()


def test_a_model_file_as_the_only_argument_is_loaded_as_the_target(
    settings: Program, screen: Screen, starter_draft: Path
) -> None:
    window = Window(settings, screen, str(starter_draft))
    window.ask("Hello.")
    wait_until(lambda: [status for status, _ in answers(settings)] == ["complete"], "the answer on disk")
    assert settings.rows("SELECT target, draft FROM messages WHERE role = 'assistant'") == [
        (starter_draft.name, "none")
    ]
    window.close()
