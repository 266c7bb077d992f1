"""What a run needs before it begins."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from draftlight.errors import UserError
from draftlight.forge import conditions
from draftlight.forge.recipe import ChatPlan, Kind, Recipe, Shape
from draftlight.library.gguf import GgufHeader, read_header
from twins import Twins


@dataclass(frozen=True)
class Battery:
    percent: float
    power_plugged: bool | None


@pytest.fixture
def header(twin_pair: Twins) -> GgufHeader:
    return read_header(twin_pair.target)


@pytest.mark.parametrize(
    ("battery", "low"),
    [
        (None, False),
        (Battery(19.0, power_plugged=False), True),
        (Battery(20.0, power_plugged=False), False),
        (Battery(5.0, power_plugged=True), False),
        (Battery(5.0, power_plugged=None), False),
    ],
)
def test_only_a_battery_in_use_can_be_low(battery: Battery | None, low: bool) -> None:  # noqa: FBT001 - a case's value
    assert conditions.is_low(battery) is low


def test_a_target_of_another_family_is_refused_with_a_sentence(header: GgufHeader) -> None:
    conditions.require_family(header)
    other = replace(header, metadata={**header.metadata, "general.architecture": "rwkv7"})
    with pytest.raises(UserError, match="rwkv7 family"):
        conditions.require_family(other)


def test_a_disk_with_too_little_room_is_named(tmp_path: Path) -> None:
    conditions.require_room({tmp_path / "not made yet": 1})
    with pytest.raises(UserError, match="GB are free") as full:
        conditions.require_room({tmp_path / "a": 10**18})
    assert str(tmp_path) in full.value.sentence
    half = 10**18 // 2
    with pytest.raises(UserError, match="1,000,000,000"):  # both lie on the same disk
        conditions.require_room({tmp_path / "a": half, tmp_path / "b": half})


def test_more_chats_and_larger_targets_take_more_room(header: GgufHeader) -> None:
    hour = conditions.folder_bytes(header, 60, None)
    assert conditions.folder_bytes(header, 120, None) > 1.8 * hour
    few = Recipe(Shape(Kind.PRUNED, (0, 1)), ChatPlan(n_tokens=1000, n_labels=16))
    many = replace(few, chats=ChatPlan(n_tokens=2000, n_labels=16))
    assert conditions.folder_bytes(header, 60, many) - conditions.folder_bytes(header, 60, few) == 110_000
    larger = replace(header, n_parameters=10 * header.n_parameters)
    assert conditions.out_bytes(larger) > conditions.out_bytes(header) > 0
