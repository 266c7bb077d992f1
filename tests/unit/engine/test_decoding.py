"""The loop: whatever is drafted, the committed tokens are the target's own, bit for bit."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftlight.engine.cancel import CancelToken
from draftlight.engine.context import Context
from draftlight.engine.costs import PairFacts, StepCosts
from draftlight.engine.decoding import ContextOverflow, GenerationRequest, Mode, SpeculativeDecoder
from draftlight.engine.drafting.base import Drafter
from draftlight.engine.drafting.model import ModelDrafter
from draftlight.engine.drafting.suffix import SuffixDrafter
from draftlight.engine.events import (
    Event,
    GenerationFinished,
    PromptEvaluated,
    RoundVerified,
    StopReason,
    TokenDrafted,
    TokenFate,
)
from draftlight.engine.sampling import SamplingParams
from toys import LetterTokenizer, TableModel

GREEDY = SamplingParams(temperature=0)
PENALISED = SamplingParams(temperature=0.9, top_k=0, top_p=1.0, min_p=0.0, repeat_penalty=1.3, frequency_penalty=0.3)
TOKENIZER = LetterTokenizer()
ONE_PRICE = StepCosts((100,), (1,), ((0.001,),))


def decoder(
    noise: float | None = 1.0,
    *,
    tokenizer: LetterTokenizer = TOKENIZER,
    n_ctx: int = 4096,
    draft_n_ctx: int = 4096,
    exact_widths: frozenset[int] | None = None,
) -> SpeculativeDecoder:
    """A target and a draft with this much noise; None drafts from the text's own repetitions."""
    drafter: Drafter = SuffixDrafter()
    if noise is not None:
        drafter = ModelDrafter(Context(TableModel(noise=noise, n_ctx=draft_n_ctx)), n_vocab=16)
    facts = None if exact_widths is None else PairFacts(ONE_PRICE, exact_widths=exact_widths)
    return SpeculativeDecoder(Context(TableModel(n_ctx=n_ctx), chunk=8), [drafter], tokenizer, facts)


def request(**changes: object) -> GenerationRequest:
    settings: dict[str, object] = {"prompt": (1, 2, 3), "sampling": GREEDY, "seed": 5, "max_new_tokens": 60}
    return GenerationRequest(**{**settings, **changes})  # type: ignore[arg-type]  # a test's shorthand


def run(made: SpeculativeDecoder, asked: GenerationRequest) -> tuple[list[Event], GenerationFinished]:
    events = list(made.generate(asked, CancelToken()))
    finished = events[-1]
    assert isinstance(finished, GenerationFinished)
    return events, finished


def rounds(events: list[Event]) -> list[RoundVerified]:
    return [event for event in events if isinstance(event, RoundVerified)]


@given(
    k=st.integers(0, 16),
    noise=st.sampled_from([0.0, 0.5, 1.0, 3.0, None]),
    sampling=st.sampled_from([GREEDY, SamplingParams(), SamplingParams(temperature=1.5, top_k=0), PENALISED]),
    seed=st.integers(0, 2**40),
    n=st.integers(1, 60),
)
@settings(deadline=None, max_examples=120)
def test_any_draft_commits_what_plain_decoding_commits(
    k: int, noise: float | None, sampling: SamplingParams, seed: int, n: int
) -> None:
    asked = request(sampling=sampling, seed=seed, max_new_tokens=n)
    _, plain = run(decoder(), GenerationRequest(asked.prompt, sampling, seed, draft_length=0, max_new_tokens=n))
    _, drafted = run(decoder(noise), GenerationRequest(asked.prompt, sampling, seed, draft_length=k, max_new_tokens=n))
    assert drafted.tokens == plain.tokens
    assert drafted.text == plain.text
    assert len(plain.tokens) == n


def test_a_perfect_draft_is_accepted_whole_and_earns_a_bonus_each_round() -> None:
    for sampling in (GREEDY, SamplingParams()):
        events, finished = run(decoder(0.0), request(sampling=sampling, draft_length=4, max_new_tokens=51))
        middle = rounds(events)[1:]
        assert all(token.fate is TokenFate.ACCEPTED for report in middle for token in report.drafted)
        assert all(report.target_token and report.target_token.fate is TokenFate.BONUS for report in middle)
        assert (finished.stats.acceptance_rate, len(middle)) == (1.0, 10)


def test_each_round_tells_accepted_rejected_not_reached_and_correction_in_this_order() -> None:
    events, finished = run(decoder(1.0), request(draft_length=5, max_new_tokens=200))
    order = [TokenFate.ACCEPTED, TokenFate.REJECTED, TokenFate.NOT_REACHED]
    for report in rounds(events)[1:]:
        fates = [token.fate for token in report.drafted]
        assert fates == sorted(fates, key=order.index)
        assert fates.count(TokenFate.REJECTED) <= 1
        rejected = [token for token in report.drafted if token.fate is TokenFate.REJECTED]
        if rejected:
            assert report.target_token is not None
            assert report.target_token.fate is TokenFate.CORRECTION
            assert rejected[0].choice is not None
            assert rejected[0].choice.id == report.target_token.id != rejected[0].id
        assert all(token.p is None for token in report.drafted if token.fate is TokenFate.NOT_REACHED)
    stats = finished.stats
    assert stats.n_drafted == stats.n_accepted + stats.n_rejected + stats.n_not_reached
    assert min(stats.n_accepted, stats.n_rejected, stats.n_not_reached) > 0
    assert stats.n_committed == len(finished.tokens) == 200
    assert sum(stats.accepted_at) == stats.n_accepted


def test_pending_tokens_are_reported_before_they_are_judged_and_are_the_same() -> None:
    events, _ = run(decoder(), request(draft_length=3))
    pending: list[int] = []
    for event in events:
        if isinstance(event, TokenDrafted):
            assert event.token.fate is TokenFate.PENDING
            pending.append(event.token.id)
        elif isinstance(event, RoundVerified):
            assert [token.id for token in event.drafted] == pending
            pending = []


def test_committed_tokens_of_the_rounds_are_the_answer() -> None:
    events, finished = run(decoder(), request(draft_length=3))
    committed = [token for report in rounds(events) for token in report.committed]
    assert tuple(token.id for token in committed) == finished.tokens
    assert "".join(token.text for token in committed) == finished.text
    assert [report.position for report in rounds(events)][:2] == [0, 1]


@pytest.mark.parametrize("noise", [0.0, 1.0, None])
def test_nothing_is_committed_past_an_end_token(noise: float | None) -> None:
    _, free = run(decoder(), request(draft_length=0, max_new_tokens=100))
    end = free.tokens[20]
    tokenizer = LetterTokenizer(end=end)
    stop = free.tokens.index(end)
    for k in (0, 1, 3, 8):
        events, finished = run(decoder(noise, tokenizer=tokenizer), request(draft_length=k, max_new_tokens=100))
        assert finished.reason is StopReason.END_TOKEN
        assert finished.tokens == free.tokens[: stop + 1]
        assert rounds(events)[-1].committed[-1].id == end


@pytest.mark.parametrize("k", [0, 1, 3, 8])
def test_a_stop_string_ends_the_answer_at_the_same_place_for_every_draft_length(k: int) -> None:
    _, free = run(decoder(), request(draft_length=0, max_new_tokens=100))
    stop = free.text[30:33]
    events, finished = run(decoder(0.0), request(draft_length=k, max_new_tokens=100, stop=(stop,)))
    assert finished.reason is StopReason.STOP_STRING
    assert finished.text == free.text[: free.text.index(stop)]
    assert len(finished.tokens) == len(finished.text) + 3
    assert all(report.text_length <= len(finished.text) for report in rounds(events))
    assert tuple(token.id for report in rounds(events) for token in report.committed) == finished.tokens


def test_the_context_limit_ends_the_answer_and_no_forward_pass_overruns_it() -> None:
    for k in (0, 3, 7):
        _, finished = run(decoder(0.0, n_ctx=20), request(draft_length=k, max_new_tokens=100))
        assert finished.reason is StopReason.CONTEXT_FULL
        assert len(finished.tokens) == 20 - 3 + 1


def test_a_draft_model_with_a_shorter_context_goes_silent_and_the_answer_goes_on() -> None:
    events, finished = run(decoder(0.0, draft_n_ctx=20), request(draft_length=3, max_new_tokens=60))
    assert len(finished.tokens) == 60
    assert "full" in rounds(events)[-2].no_draft_reason


def test_a_round_without_a_draft_says_why() -> None:
    for made, k, words in ((decoder(), 0, "off"), (decoder(None), 3, "not occurred")):
        events, _ = run(made, request(prompt=(7, 8), draft_length=k, max_new_tokens=3))
        assert words in rounds(events)[1].no_draft_reason
    bare = SpeculativeDecoder(Context(TableModel()), [], TOKENIZER)
    events, _ = run(bare, request(draft_length=3, max_new_tokens=3))
    assert "no draft is chosen" in rounds(events)[1].no_draft_reason


def test_a_cancel_ends_between_two_forward_passes_with_what_was_committed() -> None:
    cancel, seen = CancelToken(), []
    for event in decoder().generate(request(draft_length=3), cancel):
        seen.append(event)
        if len(rounds(seen)) == 4:
            cancel.cancel()
    finished = seen[-1]
    assert isinstance(finished, GenerationFinished)
    assert finished.reason is StopReason.CANCELLED
    assert len(rounds(seen)) == 4
    assert finished.tokens == tuple(token.id for report in rounds(seen) for token in report.committed)


def test_a_cancel_in_a_long_prefill_stops_after_the_chunk() -> None:
    cancel, seen = CancelToken(), []
    for event in decoder().generate(request(prompt=(1, 2) * 40), cancel):
        seen.append(event)
        cancel.cancel()
    assert [type(event) for event in seen] == [PromptEvaluated, GenerationFinished]
    assert seen[0] == PromptEvaluated(80, 8, 0, seen[0].seconds)  # type: ignore[union-attr]  # checked above


def test_a_cancel_in_the_middle_of_a_draft_spares_the_verify() -> None:
    target, cancel = TableModel(), CancelToken()
    drafter = ModelDrafter(Context(TableModel()), 16)
    for event in SpeculativeDecoder(Context(target), [drafter], TOKENIZER).generate(request(draft_length=5), cancel):
        if isinstance(event, TokenDrafted) and event.index == 1:
            cancel.cancel()
    assert target.forwards == [3], "only the prompt was evaluated"


def test_a_cancelled_generation_leaves_both_caches_fit_for_the_next() -> None:
    made = decoder()
    cancel = CancelToken()
    for event in made.generate(request(draft_length=5, sampling=SamplingParams()), cancel):
        if isinstance(event, TokenDrafted) and event.round == 3 and event.index == 2:
            cancel.cancel()
    asked = request(draft_length=5, prompt=(1, 2, 3, 9), sampling=SamplingParams())
    assert run(made, asked)[1].tokens == run(decoder(), asked)[1].tokens


def test_the_next_turn_reuses_the_shared_prefix() -> None:
    made = decoder()
    _, first = run(made, request(draft_length=3))
    longer = (1, 2, 3, *first.tokens[:-4], 7, 7)
    events, finished = run(made, request(prompt=longer, draft_length=3))
    assert finished.stats.n_reused == len(longer) - 2
    assert isinstance(events[0], PromptEvaluated)
    assert finished.tokens == run(decoder(), request(prompt=longer))[1].tokens


def test_the_draft_model_reads_nothing_before_the_first_token_is_out() -> None:
    draft = TableModel()
    made = SpeculativeDecoder(Context(TableModel()), [ModelDrafter(Context(draft), 16)], TOKENIZER)
    for event in made.generate(request(), CancelToken()):
        if isinstance(event, RoundVerified):
            assert draft.forwards == []
            return


def test_exact_mode_uses_only_exact_widths() -> None:
    made = decoder(0.0, exact_widths=frozenset({1, 3, 4}))
    for mode, widest in ((Mode.EXACT, 4), (Mode.FAST, 8)):
        events, _ = run(made, request(draft_length=7, mode=mode, max_new_tokens=100))
        assert max(len(report.drafted) + 1 for report in rounds(events)) == widest
    made = decoder(0.0, exact_widths=frozenset({1}))
    events, _ = run(made, request(draft_length=7, mode=Mode.EXACT))
    assert "exact" in rounds(events)[1].no_draft_reason


def test_a_prompt_that_does_not_fit_is_refused_with_both_figures() -> None:
    with pytest.raises(ContextOverflow, match=r"21 tokens.*holds 20"):
        run(decoder(n_ctx=20), request(prompt=(1,) * 21))


def test_characters_split_over_tokens_are_whole_in_the_text_whatever_was_drafted() -> None:
    """A vocabulary of half characters: every other token opens one."""
    pieces = [byte for letter in "àéîöüñçø" for byte in (letter.encode()[:1], letter.encode()[1:])]
    tokenizer = LetterTokenizer(pieces)
    texts = {run(decoder(1.0, tokenizer=tokenizer), request(draft_length=k))[1].text for k in (0, 2, 5)}
    assert len(texts) == 1


def test_a_listener_s_time_is_not_counted_as_the_engine_s() -> None:
    """Events that are looked at slowly, as by a window, must not look like a slow engine."""
    import time  # noqa: PLC0415 - only here

    spent = 0.0
    for event in decoder().generate(request(draft_length=3, max_new_tokens=20), CancelToken()):
        started = time.perf_counter()
        while time.perf_counter() - started < 0.005:
            pass
        spent += 1
        if isinstance(event, GenerationFinished):
            assert event.stats.host_ms < 0.5 * 5.0 * spent


def test_plain_and_speculative_tell_the_same_p_for_the_same_committed_token() -> None:
    plain, _ = run(decoder(), request(draft_length=0, sampling=SamplingParams()))
    drafted, _ = run(decoder(), request(draft_length=3, sampling=SamplingParams()))
    left = [token.p for report in rounds(plain) for token in report.committed]
    right = [token.p for report in rounds(drafted) for token in report.committed]
    assert left == pytest.approx(right)


def test_after_forgetting_the_whole_prompt_is_read_again() -> None:
    made = decoder()
    reused = []
    for forgets in (False, False, True):
        if forgets:
            made.forget()
        _, finished = run(made, request(draft_length=0))
        reused.append(finished.stats.n_reused)
    assert reused == [0, 2, 0]


def test_the_end_tokens_are_known() -> None:
    assert decoder(tokenizer=LetterTokenizer(end=7)).end_tokens == {7}


def test_reported_figures_have_six_decimals_and_no_more() -> None:
    events, _ = run(decoder(noise=1.0), request(sampling=SamplingParams(temperature=0.9)))
    tokens = [token for done in rounds(events) for token in (*done.drafted, done.target_token) if token is not None]
    figures = [figure for token in tokens for figure in (token.p, token.q, token.score, token.margin)]
    told = [figure for figure in figures if figure is not None]
    assert told
    assert all(figure == round(figure, 6) for figure in told)
