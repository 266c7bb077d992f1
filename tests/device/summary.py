"""The results of a run on a device in one page: summary.py FOLDER. A step that left nothing behind is left out."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

EXACT = "exact_widths"
IDENTITY = (": ", " passed", " failed", " skipped")  # of what pytest prints: what was found, and how it ended


def main() -> int:
    """Print the page."""
    folder = Path(sys.argv[1])
    sys.stdout.write("\n".join(page(folder)) + "\n")
    return 0


def page(folder: Path) -> Iterator[str]:
    """Yield its lines."""
    yield from text(folder / "machine.txt")
    yield from text(folder / "steps.txt")
    yield from (
        line for line in text(folder / "identity.txt") if ": " in line or " passed" in line or " failed" in line
    )
    probe = last_object(folder / "probe.json")
    yield from (f"probe, {where}: {value}" for where, value in found(probe, EXACT))
    bench = last_object(folder / "bench.json")
    if bench:
        yield f"benchmark: {bench.get('n_prompts')} prompts{', cut short' if bench.get('interrupted') else ''}"
        yield f"{'arm':8} {'tok/s':>8} {'ratio':>6}  {'interval':13} {'identical':>9} {'accepted':>8}"
    for name, arm in (bench.get("arms") or {}).items():
        interval = f"{figure(arm.get('ratio_low'))} to {figure(arm.get('ratio_high'))}"
        yield (
            f"{name:8} {figure(arm.get('tok_s')):>8} {figure(arm.get('ratio')):>6}  {interval:13} "
            f"{figure(arm.get('identical')):>9} {figure(arm.get('acceptance_rate')):>8}"
        )
    yield from (f"doubt: {sentence}" for sentence in bench.get("doubts") or ())


def text(file: Path) -> list[str]:
    """Return a file's lines; none where it is missing."""
    return file.read_text(encoding="utf-8", errors="replace").splitlines() if file.is_file() else []


def last_object(file: Path) -> dict[str, Any]:
    """Return the JSON object on the last line; an empty one where there is none."""
    lines = [line for line in text(file) if line.strip()]
    try:
        value = json.loads(lines[-1]) if lines else {}
    except ValueError:
        value = {}
    return value if isinstance(value, dict) else {}


def found(value: object, key: str, where: str = "") -> Iterator[tuple[str, object]]:
    """Yield every value under this key, however deep, with the path to it."""
    if isinstance(value, dict):
        for name, inner in value.items():
            path = f"{where}.{name}" if where else name
            if name == key:
                yield path, inner
            else:
                yield from found(inner, key, path)


def figure(value: object) -> str:
    """Write a figure; a dash where there is none."""
    return f"{value:.2f}" if isinstance(value, int | float) else "-"


if __name__ == "__main__":
    sys.exit(main())
