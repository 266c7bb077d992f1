"""Drafters: in step with the text, within their limits, silent with a reason."""

from draftlight.engine.cancel import CancelToken
from draftlight.engine.context import Context
from draftlight.engine.drafting.base import Drafter
from draftlight.engine.drafting.model import ModelDrafter
from draftlight.engine.sampling import Sampler, SamplingParams
from toys import TableModel

GREEDY = Sampler(SamplingParams(temperature=0), seed=1)


def proposals(drafter: Drafter, history: list[int], limit: int) -> list[int]:
    """What it proposes one after another, taken for granted each time."""
    drafter.begin(history)
    sequence = list(history)
    while len(sequence) < len(history) + limit and drafter.offer(sequence, len(history)).ready:
        drafted = drafter.propose(sequence, GREEDY, CancelToken())
        assert drafted is not None
        sequence.append(drafted.token)
    return sequence[len(history) :]


def model_drafter(model: TableModel) -> ModelDrafter:
    return ModelDrafter(Context(model), n_vocab=model.n_vocab)


def test_the_draft_s_cache_is_kept_in_step_without_evaluating_anything_twice() -> None:
    """After a rejection only the correction is fed; after a full acceptance the last draft token and the bonus."""
    model = TableModel()
    drafter = model_drafter(model)
    history = [1, 2, 3]
    draft = proposals(drafter, history, 3)
    assert model.forwards == [3, 1, 1]
    rejected = [*history, draft[0], (draft[1] + 1) % 16]
    model.forwards.clear()
    draft = proposals(drafter, rejected, 3)
    assert model.forwards == [1, 1, 1]
    accepted = [*rejected, *draft, 9]
    model.forwards.clear()
    proposals(drafter, accepted, 2)
    assert model.forwards == [2, 1]


def test_a_draft_model_with_a_full_context_is_silent_and_says_why() -> None:
    drafter = model_drafter(TableModel(n_ctx=4))
    assert len(proposals(drafter, [1, 2], 8)) == 3, "the last token drafted need not enter the cache"
    assert "full" in drafter.offer([1, 2, 3, 4, 5], 5).silence


def test_padding_ids_of_a_wider_draft_vocabulary_are_never_proposed() -> None:
    model = TableModel(20)
    model.table[:, :, 16:] += 100.0
    drafter = ModelDrafter(Context(model), n_vocab=16)
    assert all(token < 16 for token in proposals(drafter, [1, 2], 4))


def test_a_token_that_the_draft_model_does_not_know_silences_it() -> None:
    drafter = model_drafter(TableModel(8))
    assert "does not know" in drafter.offer([1, 12], 2).silence


def test_a_cancelled_draft_stops_before_the_next_forward_pass() -> None:
    model, cancel = TableModel(), CancelToken()
    cancel.cancel()
    assert model_drafter(model).propose([1], GREEDY, cancel) is None
    assert model.forwards == []


def test_a_review_compares_the_text_s_own_tokens_with_what_would_have_been_drafted() -> None:
    model = TableModel()
    drafter, text = model_drafter(model), [1, 2]
    for n in range(12):
        text.append(int(model.row(text).argmax()) if n % 3 else 5)
    trials = drafter.review(text, GREEDY, CancelToken(), 64)
    assert [trial.accepted for trial in trials] == [
        text[place] == int(model.row(text[:place]).argmax()) for place in range(1, len(text))
    ]
    assert model.forwards == [len(text)], "one pass tells all"
    assert proposals(drafter, text, 1) == [int(model.row(text).argmax())]
