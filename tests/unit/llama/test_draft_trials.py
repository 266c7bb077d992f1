"""A draft model is asked for what the target writes, before any answer."""

from draftlight.llama.draft_trials import N_TRIALS, try_drafting
from draftlight.llama.measuring import TimeBox
from toys import LetterTokenizer, TableModel


class Letters(LetterTokenizer):
    """Every text is made of the same few tokens."""

    def encode(self, text: str) -> list[int]:
        return [ord(letter) % 16 for letter in text[:20]]


def test_a_draft_model_that_computes_the_same_foretells_all() -> None:
    trials = try_drafting(TableModel(), TableModel(), Letters(), [1], TimeBox(60.0))
    assert len(trials) == N_TRIALS
    assert all(trial.accepted for trial in trials)
    assert all(trial.margin > 0 for trial in trials)


def test_a_draft_model_of_another_mind_foretells_little() -> None:
    trials = try_drafting(TableModel(), TableModel(seed=5), Letters(), [], TimeBox(60.0))
    assert sum(trial.accepted for trial in trials) < len(trials) / 2


def test_the_text_ends_at_an_end_token_or_with_the_time() -> None:
    model = TableModel()
    first = int(model.row([*Letters().encode("def"), 3]).argmax())
    trials = try_drafting(TableModel(), TableModel(), Letters(end=first), [], TimeBox(60.0))
    assert len(trials) < N_TRIALS
    assert len(try_drafting(TableModel(), TableModel(), Letters(), [], TimeBox(0.0))) == 3  # a token for each prompt


def test_prompts_that_do_not_fit_are_passed_over() -> None:
    assert try_drafting(TableModel(n_ctx=20), TableModel(), Letters(), [], TimeBox(60.0)) == ()
