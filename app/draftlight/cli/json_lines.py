"""Events as JSON, one object a line. The names are an interface that others read: add to them, never change them."""

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any, TextIO

from draftlight.engine.events import RoundVerified
from draftlight.engine.metrics import SpeculationStats

_DERIVED = ("acceptance_rate", "alpha", "block_efficiency", "tokens_per_second", "host_share")


def plain_value(value: Any) -> Any:  # noqa: ANN401 - turns any event's parts into what JSON can hold
    """Return dicts, lists, strings and finite numbers for a frozen value; NaN and infinity become null.

    A round carries what it committed beside what was drafted, and the figures carry the rates that follow from them.
    """
    if isinstance(value, Mapping):
        return {str(key): plain_value(each) for key, each in value.items()}
    if hasattr(value, "_asdict"):
        return plain_value(value._asdict())
    if isinstance(value, list | tuple | set | frozenset):
        return [plain_value(each) for each in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _fields(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, str | int | float) else str(value)


def _fields(value: Any) -> dict[str, Any]:  # noqa: ANN401 - see plain_value
    fields = {field.name: plain_value(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if "event" in fields:
        fields = {"event": fields.pop("event"), **fields}
    if isinstance(value, RoundVerified):
        fields["committed"] = [{"id": each.id, "text": each.text, "fate": each.fate} for each in value.committed]
    if isinstance(value, SpeculationStats):
        fields |= {name: plain_value(getattr(value, name)) for name in _DERIVED}
    return fields


def write_line(stream: TextIO, value: Any, **more: Any) -> None:  # noqa: ANN401 - see plain_value
    """Write one value as a line of ASCII JSON, with further fields, and flush it."""
    fields = {**plain_value(value), **{name: plain_value(each) for name, each in more.items()}}
    stream.write(json.dumps(fields, allow_nan=False) + "\n")
    stream.flush()
