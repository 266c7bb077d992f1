"""What is known of a token, in words. Knows no widget."""

import math

from draftlight.engine.events import DraftSource, TokenFate, TokenReport
from draftlight.ui.theme import FATE_NAMES

_SOURCES = {DraftSource.MODEL: "the draft model", DraftSource.NGRAM: "n-grams of this chat"}
_SAME = {
    True: "Greedy: equal. The target's likeliest token is the same",
    False: "With the same noise the target draws the same token",
}
_LONGEST_BYTES = 24
_VISIBLE = str.maketrans({"\n": "⏎", "\t": "⇥", " ": "␣", "\r": "␍", "\0": "␀"})


def visible(text: str) -> str:
    """Return a token's text with its white space made visible."""
    return text.translate(_VISIBLE) if text else "(part of a character)"


def title(token: TokenReport) -> str:
    """Return the token's fate and, of a drafted one, where it came from."""
    name = FATE_NAMES[token.fate].capitalize()
    return f"{name}, drafted by {_SOURCES[token.source]}" if token.source else name


def reason(token: TokenReport, *, greedy: bool, no_draft_reason: str = "") -> str:
    """Return one sentence that says why the token has its fate, with the figures that decided it."""
    why = f" Nothing was drafted in this round: {no_draft_reason}" if no_draft_reason else ""
    sentences = {
        TokenFate.ACCEPTED: f"{_SAME[greedy]}{_lead(token)}.",
        TokenFate.REJECTED: _rejected(token, greedy=greedy),
        TokenFate.NOT_REACHED: "An earlier token of this draft was rejected, or the answer ended before this one: "
        "it was never judged and does not count as rejected.",
        TokenFate.CORRECTION: f"The target's own token, in place of the one it rejected{_lead(token)}.",
        TokenFate.BONUS: f"The whole draft was accepted; the same verify gave the target's next token{_lead(token)}.",
        TokenFate.PENDING: "Drafted; the target has not verified it yet.",
        TokenFate.PLAIN: f"The target's own token{_lead(token)}.{why}",
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


def probability(value: float) -> str:
    """Return a probability in per cent, with more digits where it is small."""
    per_cent = 100 * value
    if per_cent == 0:
        return "0 %"
    return f"{per_cent:.1f} %" if per_cent >= 1 else f"{per_cent:.2g} %"


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
