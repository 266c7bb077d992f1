"""`probe`: has a pair tried out in a child process, as the loader does, and says what works here."""

import json
import sys

from draftlight.cli.arguments import Arguments
from draftlight.cli.choices import pair_settings
from draftlight.cli.interrupts import cancelled_by_ctrl_c
from draftlight.cli.json_lines import plain_value, write_line
from draftlight.cli.parts import Parts
from draftlight.engine.cancel import CancelToken


def run(arguments: Arguments, parts: Parts) -> int:
    """Probe the pair and write the result, as one line of JSON or laid out for reading; return the exit status."""
    cancel = CancelToken()
    with cancelled_by_ctrl_c(cancel):
        result = parts.probe(pair_settings(arguments), cancel)
    if arguments.json:
        write_line(sys.stdout, result)
    else:
        sys.stdout.write(json.dumps(plain_value(result), indent=2, ensure_ascii=False) + "\n")
    return 0
