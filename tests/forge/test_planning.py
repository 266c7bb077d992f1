"""How large a run is made, and which shapes are looked at."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from draftlight.engine.costs import StepCosts
from draftlight.engine.decoding import LONGEST_DRAFT
from draftlight.errors import UserError
from draftlight.forge.planning import Budget, device, languages, rows_in_time, rows_together, sized
from draftlight.forge.prospects import expected_acceptance, shapes_for, usual_minutes, verify_costs
from draftlight.forge.recipe import ChatPlan, Kind, Recipe, Shape, as_toml, read_recipe
from draftlight.forge.reports import Outlook
from draftlight.forge.writing import ATTENTION
from small_torch import small_model
from twins import write_twin

RECIPE = Recipe(Shape(Kind.NARROW, n_layers=4, width=256))


def test_a_run_of_twice_the_time_writes_and_learns_twice_as_much() -> None:
    one, two = (sized(RECIPE, 0, Budget(seconds, 0.0, 0.0, 0.002, 0.0004, 1.0)) for seconds in (3600.0, 7200.0))
    assert two.chats.n_tokens == pytest.approx(2 * one.chats.n_tokens, rel=0.01)
    assert two.training.n_tokens == pytest.approx(2 * one.training.n_tokens, rel=0.01)


@given(
    whole=st.floats(900, 30_000),
    spent=st.floats(0, 0.3),
    end=st.floats(0, 0.2),
    speeds=st.tuples(st.floats(1e-3, 0.05), st.floats(1e-4, 0.02), st.floats(0.1, 100.0)),
)
def test_everything_together_takes_the_time_that_was_given(
    whole: float, spent: float, end: float, speeds: tuple[float, float, float]
) -> None:
    chat, step, look = speeds
    n_written = 500
    budget = Budget(whole, spent * whole + n_written * chat, end * whole, chat, step, look)
    made = sized(RECIPE, n_written, budget)
    chats = (made.chats.n_tokens - n_written) * chat
    took = budget.spent + chats + made.training.n_tokens * step + made.held_out.n_looks * look + budget.end
    least = 2_000 * chat + 4_000 * step + 3 * look  # less than that teaches nothing
    assert took <= max(1.02 * whole, budget.spent + budget.end + max(0.3 * whole, least) + least)
    assert took >= 0.98 * whole or made.training.n_tokens == 8 * made.chats.n_tokens
    assert 3 <= made.held_out.n_looks <= RECIPE.held_out.n_looks


def test_no_chat_is_learned_more_often_than_is_good() -> None:
    slow_writer = sized(RECIPE, 0, Budget(3600.0, 0.0, 0.0, 0.1, 0.0001, 1.0))
    assert slow_writer.training.n_tokens == 8 * slow_writer.chats.n_tokens


def test_shapes_fit_the_target() -> None:
    target = small_model("llama", n_layers=3)
    shapes = shapes_for(target, "auto")
    assert shapes == [Shape(Kind.PRUNED, layers=(0, 2)), Shape(Kind.NARROW, n_layers=3, width=32)]
    assert shapes_for(target, "narrow") == shapes[1:]
    assert shapes_for(target, "pruned") == shapes[:1]
    config: Any = target.config
    config.num_hidden_layers, config.hidden_size, config.num_attention_heads, config.head_dim = 30, 576, 9, 64
    assert shapes_for(target, "auto") == [
        Shape(Kind.PRUNED, layers=(0, 1, 28, 29)),
        Shape(Kind.NARROW, n_layers=3, width=256),
    ]


def test_more_time_is_expected_to_bring_more_acceptance() -> None:
    for kind in Kind:
        expected = [expected_acceptance(kind, minutes) for minutes in (0, 5, 10, 30, 60, 120, 240, 1000)]
        assert expected == sorted(expected)
        assert expected[0] == 0.0
        assert expected[-1] < 0.7
        assert expected_acceptance(kind, 60, 270_000_000) == expected_acceptance(kind, 30)


def test_a_recipe_is_expected_to_bring_what_its_training_does() -> None:
    assert usual_minutes(replace(RECIPE.training, n_tokens=2_800_000)) == pytest.approx(60.0)
    assert usual_minutes(replace(RECIPE.training, n_tokens=28_000)) == pytest.approx(0.6)


def test_verifies_are_priced_in_plain_steps() -> None:
    costs = StepCosts((100, 2000), (1, 2, 4, 8, 16), ((1.0, 1.5, 2.0, 3.0, 5.0), (1.0, 1.5, 2.0, 3.0, 5.0)))
    assert verify_costs(costs)[:4] == (1.0, 1.5, 1.75, 2.0)


def test_the_best_possible_gain_counts_every_draft_length_of_the_engine() -> None:
    flat = StepCosts((100, 2000), (1, 32), ((1.0, 1.0), (1.0, 1.0)))
    assert Outlook("", verify_costs(flat), 0.0, 0.5).most == pytest.approx(LONGEST_DRAFT + 1)


def test_a_large_cache_takes_fewer_chats_at_once() -> None:
    target = small_model("llama")
    assert rows_together(target, ChatPlan()) == 128
    config: Any = target.config
    config.num_hidden_layers, config.num_key_value_heads, config.head_dim = 4000, 64, 128
    assert 1 <= rows_together(target, ChatPlan()) < 128


def test_chats_are_written_together_only_as_many_as_their_time_allows() -> None:
    target, seconds = small_model("llama", attention=ATTENTION), iter(range(10_000))
    chats = ChatPlan(longest_question=20, longest_answer=80)

    def clock() -> float:
        return float(next(seconds))  # each step takes a second, so these chats take 100

    def together(allowed: float, *, goes_on: bool = True) -> int | None:
        return rows_in_time(target, chats, allowed, lambda: goes_on, clock)

    assert together(100.0) == 128
    assert together(99.0) == 16
    assert together(99.0, goes_on=False) is None


def test_a_gpu_without_room_for_target_and_draft_model_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (8 * 2**30, 16 * 2**30))
    assert device(6 * 2**30) == torch.device("cuda")
    assert device(8 * 2**30) == torch.device("cpu")


def test_a_target_speaks_what_its_file_says(tmp_path: Path, starter_target: Path) -> None:
    write_twin(tmp_path / "twin.gguf")
    assert languages(tmp_path / "twin.gguf", ("de", "en")) == ("en",)
    assert languages(starter_target, ("de", "en")) == ("en",)
    assert languages(starter_target, ("de", "fr")) == ("en",)
    speaks = tmp_path / "speaks.gguf"
    writer = gguf.GGUFWriter(speaks, "llama")
    writer.add_array("general.languages", ["fr", "en", "xx", "de"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    assert languages(speaks, ("de", "en", "es", "fr")) == ("de", "en", "fr")


def test_a_recipe_comes_back_as_it_was_written_and_a_wrong_one_is_refused(tmp_path: Path) -> None:
    recipe = replace(RECIPE, chats=ChatPlan(languages=("de", "fr"), greedy_share=0.7), seed=5)
    file = tmp_path / "recipe.toml"
    file.write_text(as_toml(recipe), "utf-8")
    assert read_recipe(file) == recipe
    file.write_text("seed = 'many'", "utf-8")
    with pytest.raises(UserError, match="is no recipe"):
        read_recipe(file)
