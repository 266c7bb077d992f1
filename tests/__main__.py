"""`python3 tests [PYTEST ARGUMENTS]`: set everything up on the first start, then run every check.

With arguments only pytest runs, and gets them. pytest comes last, so that its summary closes the output.
Only the standard library; the set-up is done by packaging/bootstrap.py.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "packaging"))

import bootstrap  # noqa: E402 - found through the line above

OURS = ["app", "tests", "packaging"]
SET_UP = sorted(path.name for path in (ROOT / "packaging").glob("*.py"))
SHARED = sorted(path.name for path in (ROOT / "tests").glob("*.py") if path.name != "__main__.py")
ROOMS = ["unit", "integration", "forge", "gui", "e2e", "device"]

# What is run, from the top of the checkout: a heading, then a program of .venv with its arguments.
CHECKS = [
    ("format", ["ruff", "format", "--check", *OURS]),
    ("style", ["ruff", "check", *OURS]),
    ("types", ["mypy"]),
    # Apart, because both launchers are called __main__.
    ("types of the set-up", ["mypy", *(f"packaging/{name}" for name in SET_UP), "app/__main__.py"]),
    ("types of the tests", ["mypy", *(f"tests/{room}" for room in ROOMS), *(f"tests/{name}" for name in SHARED)]),
    ("types of the test command", ["mypy", "tests/__main__.py"]),
    ("layers", ["lint-imports"]),
    ("tests", ["pytest"]),
]

if __name__ == "__main__":
    sys.exit(bootstrap.run_tests(CHECKS, sys.argv[1:]))
