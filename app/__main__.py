"""`python3 app [ARGUMENTS]`: set everything up on the first start, then start the program with these arguments.

Only the standard library, and nothing newer than an old Python can read: that one still has to say what is missing.
The work is done by packaging/bootstrap.py, which lies in no package (a package there would shadow `packaging`).
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "packaging"))

import bootstrap

if __name__ == "__main__":
    sys.exit(bootstrap.run_app(sys.argv[1:]))
