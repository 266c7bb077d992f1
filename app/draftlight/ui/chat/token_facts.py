"""What is known of a token, in words. Knows no widget."""

import math

from draftlight.engine.events import DraftSource, RoundVerified, TokenFate, TokenReport
from draftlight.ui.theme import FATE_NAMES

_SOURCES = {DraftSource.MODEL: "the draft model", DraftSource.NGRAM: "n-grams of this chat"}
_SAME = {
    True: "Greedy: equal. The target's likeliest token is the same",
    False: "With the same noise the target draws the same token",
}
_NEVER_JUDGED = "it was never judged and does not count as rejected."
_LONGEST_BYTES = 24
_VISIBLE = str.maketrans({"\n": "⏎", "\t": "⇥", " ": "␣", "\r": "␍", "\0": "␀"})


def visible(text: str) -> str:
    """Return a token's text with its white space made visible."""
    return text.translate(_VISIBLE) if text else "(part of a character)"


def title(token: TokenReport) -> str:
    """Return the token's fate and, of a drafted one, where it came from."""
    name = FATE_NAMES[token.fate].capitalize()
    if token.source is DraftSource.NGRAM and token.matched:
        return f"{name}, copied after {_counted(token.matched, 'equal token')}"
    return f"{name}, drafted by {_SOURCES[token.source]}" if token.source else name


def reason(token: TokenReport, verified: RoundVerified | None = None, *, greedy: bool) -> str:
    """Return one sentence that says why the token has its fate, with the figures that decided it."""
    sentences = {
        TokenFate.ACCEPTED: f"{_SAME[greedy]}{_lead(token)}.",
        TokenFate.REJECTED: _rejected(token, greedy=greedy),
        TokenFate.NOT_REACHED: _not_reached(token, verified),
        TokenFate.CORRECTION: f"The target's own token, in place of the one it rejected{_lead(token)}.",
        TokenFate.BONUS: f"The whole draft was accepted; the same verify gave the target's next token{_lead(token)}.",
        TokenFate.PENDING: "Drafted; the target has not verified it yet.",
        TokenFate.PLAIN: f"The target's own token{_lead(token)}.{_why_plain(verified)}",
    }
    return sentences[token.fate]


def figures(token: TokenReport, *, greedy: bool) -> list[tuple[str, str]]:
    """Return the figures that were computed, as label and value."""
    score = "logit" if greedy else "score"
    rows: list[tuple[str, str]] = [("Token", f"id {token.id}, bytes {_bytes(token.text)}")]
    if token.p is not None:
        rows.append(("p, target", f"{probability(token.p)}{_rank(token.p_rank)}"))
    if token.q is not None:
        rows.append(("q, draft", f"{probability(token.q)}{_rank(token.q_rank)}"))
    if token.choice is not None and token.choice.id != token.id:
        scored = "" if token.choice_score is None else f", {score} {token.choice_score:.2f}"
        rows.append(("Target's choice", f"{visible(token.choice.text)} (id {token.choice.id}){scored}"))
    if token.score is not None:
        meaning = "" if greedy or math.isinf(token.score) else " = log p + noise"
        rows.append((score.capitalize(), f"{_score(token.score)}{meaning}"))
    if token.margin is not None and not math.isinf(token.margin):
        rows.append(("Lead of the choice", f"{token.margin:.3f}"))
    if token.draft_ms is not None:
        rows.append(("Drafted in", f"{token.draft_ms:.1f} ms"))
    return rows


def round_figures(token: TokenReport, number: int, verified: RoundVerified | None) -> list[tuple[str, str]]:
    """Return what the token's round, the `number`th from 0, says: what was foreseen, and what it took."""
    if verified is None:
        return [("Round", f"{number + 1}")]
    rows = []
    reasoning, place = verified.reasoning, _place(token, verified)
    if reasoning is not None and place is not None and place < len(reasoning.acceptance):
        chance = probability(reasoning.acceptance[place])
        rows.append(("Foreseen", f"{chance} chance" + (", if it is reached" if place else "")))
    ahead = f", the draft model ahead for {verified.ahead_ms:.1f} ms of it" if verified.ahead_ms else ""
    rows.append(("Round", f"{number + 1}, verified in {verified.verify_ms:.1f} ms{ahead}"))
    if reasoning is not None and verified.drafted:
        expected = f"{reasoning.expected:.1f} tokens (E) for {_counted(reasoning.cost, 'plain step')} (C)"
        rows.append(("It expected", f"{expected}; a plain step's time is worth {reasoning.rate:.1f} (\u03c1)"))
    if verified.saved_ms:
        change = "saved" if verified.saved_ms > 0 else "lost"
        rows.append(("Against plain", f"about {abs(verified.saved_ms):.1f} ms {change}, estimated"))
    if verified.audit is not None:
        rows.append(("Audit", "held: the same when evaluated again, alone" if verified.audit else "failed"))
    return rows


def probability(value: float) -> str:
    """Return a probability in per cent, with more digits where it is small."""
    per_cent = 100 * value
    if per_cent == 0:
        return "0 %"
    return f"{per_cent:.1f} %" if per_cent >= 1 else f"{per_cent:.2g} %"


def _place(token: TokenReport, verified: RoundVerified) -> int | None:
    """Return the token's place in its draft, None for the target's own."""
    return next((place for place, drafted in enumerate(verified.drafted) if drafted is token), None)


def _n_submitted(verified: RoundVerified) -> int:
    """Return how many drafted tokens were verified: all of them in traces older than that figure."""
    own = verified.target_token
    if own is not None and own.fate is TokenFate.PLAIN:
        return 0
    return verified.n_submitted or len(verified.drafted)


def _not_reached(token: TokenReport, verified: RoundVerified | None) -> str:
    place = None if verified is None else _place(token, verified)
    if verified is None or place is None or place < _n_submitted(verified):
        return f"An earlier token of this draft was rejected, or the answer ended before this one: {_NEVER_JUDGED}"
    return f"Left out of the verify: not worth its row, or no verify of that width is exact; {_NEVER_JUDGED}"


def _why_plain(verified: RoundVerified | None) -> str:
    if verified is None:
        return ""
    if verified.drafted:
        return " What was drafted in this round was left out of the verify."
    why = verified.no_draft_reason
    return f" Nothing was drafted in this round: {why}" if why else ""


def _counted(n: float, thing: str) -> str:
    shown = f"{n}" if isinstance(n, int) else f"{n:.1f}"
    return f"{shown} {thing}{'' if shown in ('1', '1.0') else 's'}"


def _rejected(token: TokenReport, *, greedy: bool) -> str:
    choice = f"“{visible(token.choice.text)}”" if token.choice is not None else "another token"
    if token.score is None or token.choice_score is None:
        return f"The target chose {choice}."
    if greedy:
        return (
            f"Greedy: not equal. The target's likeliest token is {choice} with logit {token.choice_score:.2f}; "
            f"this one has {_score(token.score)}."
        )
    scores = f"score {token.choice_score:.2f}; this one has {_score(token.score)}"
    return f"With the same noise the target draws {choice}, {scores}."


def _lead(token: TokenReport) -> str:
    if token.margin is None:
        return ""
    if math.isinf(token.margin):
        return ", the only one that the sampling settings leave"
    return f", {token.margin:.2f} ahead of the next"


def _score(value: float) -> str:
    """Return a score; a token that the sampling settings cut off has none."""
    return "none, cut off by the sampling settings" if math.isinf(value) else f"{value:.2f}"


def _rank(rank: int | None) -> str:
    return "" if rank is None else f", rank {rank + 1}"


def _bytes(text: str) -> str:
    raw = text.encode("utf-8", "replace")
    shown = " ".join(f"{byte:02X}" for byte in raw[:_LONGEST_BYTES])
    return (shown or "none yet") + (" …" if len(raw) > _LONGEST_BYTES else "")
