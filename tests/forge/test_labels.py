"""Labels by the target's own file: the law at each place of an answer, whatever torch thought there."""

import numpy as np
import pytest

from draftlight.forge.chats import Chats
from draftlight.forge.labels import labelled_by
from toys import TableModel


def chats(n_labels: int) -> Chats:
    """Two chats, the first with an answer longer than the rows of a pass; the labels are all wrong."""
    rng = np.random.default_rng(3)
    lengths = np.array([70, 20])
    answers = np.array([5, 12])
    n_answer_tokens = int((lengths - answers).sum())
    return Chats(
        rng.integers(0, 16, int(lengths.sum()), dtype=np.int32),
        np.concatenate([[0], np.cumsum(lengths)]),
        answers,
        np.full((n_answer_tokens, n_labels), 15, np.int32),
        np.zeros((n_answer_tokens, n_labels), np.float16),
    )


def test_each_answer_token_gets_the_law_of_the_text_before_it() -> None:
    target = TableModel()
    before = chats(4)
    found = labelled_by(target, before, 4, lambda: True)
    assert found is not None
    assert np.array_equal(found.tokens, before.tokens)
    row = 0
    for number in range(2):
        text = before.tokens[before.starts[number] : before.starts[number + 1]].tolist()
        for place in range(int(before.answers[number]), len(text)):
            logits = target.row(text[:place]).astype(np.float64)
            logprobs = logits - np.log(np.exp(logits).sum())
            order = np.argsort(-logprobs)[:4]
            assert found.label_ids[row].tolist() == order.tolist()
            assert found.label_logprobs[row] == pytest.approx(logprobs[order], abs=0.01)
            row += 1
    assert row == found.n_answer_tokens


def test_a_stop_leaves_no_labels() -> None:
    asked = iter([True, False])
    assert labelled_by(TableModel(), chats(4), 4, lambda: next(asked)) is None
