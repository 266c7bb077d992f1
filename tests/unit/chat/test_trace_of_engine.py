"""The fold over what the real engine reports, toy models below it: split characters, stop strings, rejections."""

import pytest

from draftlight.chat.trace import Trace, dump_event, dump_header
from draftlight.engine.cancel import CancelToken
from draftlight.engine.context import Context
from draftlight.engine.decoding import GenerationRequest, SpeculativeDecoder
from draftlight.engine.drafting.model import ModelDrafter
from draftlight.engine.events import Event, GenerationFinished, TokenDrafted, TokenFate
from draftlight.engine.sampling import SamplingParams
from toys import LetterTokenizer, TableModel

PIECES = (b"a", b" b", b"<", b"/", b"s>", b"\xe6", b"\xbc", b"\xa2", b"\xff", b"\n", "é".encode(), b"c")  # 漢 in three


def generate(seed: int, draft_length: int, stop: tuple[str, ...], cancel_after: int | None = None) -> list[Event]:
    tokenizer = LetterTokenizer(PIECES, end=11)
    target = Context(TableModel(12, seed=3))
    draft = Context(TableModel(12, seed=3, noise=1.5))
    cancel = CancelToken()
    request = GenerationRequest((0, 1), SamplingParams(temperature=1.5), seed, draft_length, 60, stop)
    events: list[Event] = []
    for event in SpeculativeDecoder(target, [ModelDrafter(draft, 12)], tokenizer).generate(request, cancel):
        events.append(event)
        if len(events) == cancel_after:
            cancel.cancel()
    return events


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("stop", [(), ("</s>", "\n\n")], ids=["free", "stop"])
@pytest.mark.parametrize("draft_length", [0, 1, 5])
def test_the_committed_text_is_the_engines_text(seed: int, stop: tuple[str, ...], draft_length: int) -> None:
    events = generate(seed, draft_length, stop)
    finished = events[-1]
    trace, text = Trace(), ""
    for event in events[:-1]:
        trace.apply(event)
        assert trace.text.startswith(text), "text that was shown stays"
        text = trace.text
    assert isinstance(finished, GenerationFinished)
    running = trace.stats
    trace.apply(finished)
    assert trace.text == finished.text
    assert finished.text.startswith(text)
    assert running == finished.stats
    kept = [event for event in events if not isinstance(event, TokenDrafted)]
    assert list(Trace.replay([dump_header(), *map(dump_event, kept)]).spans) == list(trace.spans)


@pytest.mark.parametrize("cancel_after", range(1, 40, 3))
def test_a_cancelled_round_leaves_no_pending_token(cancel_after: int) -> None:
    trace = Trace()
    for event in generate(1, 5, (), cancel_after):
        trace.apply(event)
    assert trace.finished is not None
    assert trace.text == trace.finished.text
    assert all(span.fate is not TokenFate.PENDING for span in trace.spans)
