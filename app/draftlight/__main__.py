"""`python -m draftlight` and the `draftlight` command: hands the arguments to app.main(). Imports nothing heavy."""

import sys

from draftlight import __version__


def main() -> int:
    """Run the program with the process's arguments and return its exit status."""
    if sys.argv[1:] == ["--version"]:  # scripts and installers ask for it: it should cost what Python's start costs
        sys.stdout.write(f"draftlight {__version__}\n")
        return 0
    from draftlight import app  # noqa: PLC0415 - see above

    return app.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
