"""`python -m draftlight` and the `draftlight` command: hands the arguments to app.main(). Imports nothing heavy."""

import sys

from draftlight import app


def main() -> int:
    """Run the program with the process's arguments and return its exit status."""
    return app.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
