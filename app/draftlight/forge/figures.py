"""What the figures of a run say, in sentences for the window and the terminal."""

from draftlight.forge.reports import Card, Outlook, Tuned

_SHOWN_LENGTHS = 4  # verify costs that are told


def is_worth_it(outlook: Outlook) -> bool:
    """Whether such a draft model usually makes answers come faster here."""
    return outlook.expected >= 1.0


def outlook_sentences(outlook: Outlook) -> tuple[str, ...]:
    """Return what is known before the run: what verifying and drafting cost, and what could come of it."""
    costs = [f"{cost:.2f}" for cost in outlook.verify_costs[1 : _SHOWN_LENGTHS + 1]]
    most, most_k = outlook.speed_up(1.0)
    expected, expected_k = outlook.speed_up(outlook.expected_acceptance)
    lengths = [str(k) for k in range(1, len(costs) + 1)]
    prices = (
        f"Here verifying {_listed(lengths)} drafted tokens costs {_listed(costs)} plain steps, "
        f"and drafting one would cost {outlook.draft_cost:.2f} ({outlook.shape})."
    )
    best = f"If every drafted token were accepted, answers would come at {most:.2f} times the speed (K = {most_k})."
    usual = (
        f"Such a draft model usually foretells {_percent(outlook.expected_acceptance)} of the target's tokens: "
        f"{expected:.2f} times the speed (K = {expected_k})."
    )
    return prices, best, usual, _verdict(outlook)


def _verdict(outlook: Outlook) -> str:
    if outlook.most < 1.0:
        return (
            "No draft model of this shape can make this target faster here: it would be slower than plain decoding, "
            "and only for teaching."
        )
    if not is_worth_it(outlook):
        return "So it would probably be slower than plain decoding, and only for teaching."
    return f"So expect about {outlook.expected:.1f} times the speed, and at most {outlook.most:.1f} times."


def card_sentence(card: Card) -> str:
    """Return what a draft model is worth, in one sentence."""
    one = card.block_efficiency.get(1)  # a verify of one draft commits one token, and another if that is accepted
    drafts = "" if one is None else f" ({_percent(one - 1.0)} of drafts accepted at K = 1)"
    worth = [
        f"foretells {_percent(card.acceptance)} of the target's tokens on held-out chats{drafts}",
        f"costs {_percent(card.draft_cost)} of a target step",
        f"expected speed-up {card.expected:.2f}x at K = {card.best_k}",
    ]
    if card.measured is not None:
        interval = ""
        if card.measured_low is not None and card.measured_high is not None:
            interval = f" ({card.measured_low:.2f} to {card.measured_high:.2f})"
        worth.append(f"measured {card.measured:.2f}x{interval}")
    speed_up = card.expected if card.measured is None else card.measured
    slower = ": slower than plain decoding, so it is for teaching" if speed_up < 1.0 else ""
    return ", ".join(worth) + slower


def tuned_sentences(tuned: Tuned) -> tuple[str, ...]:
    """Return what tuning a draft model on somebody's chats has brought."""
    tested = f"on the {tuned.n_held_out:,} newest of your {tuned.n_answers:,} answers, which it has not learned from"
    before = f"{_fine(tuned.before)} of the target's tokens were foretold before"
    if tuned.earlier is not None:
        before += f", {_fine(tuned.earlier)} by the draft model tuned earlier"
    change = f"{before}, {_fine(tuned.after)} after, {tested}."
    if tuned.path is None and tuned.earlier is not None:
        return change, (
            "That is no gain, so the draft model tuned earlier stays. It may have learned from chats that you have "
            "deleted since; a reset deletes it."
        )
    if tuned.path is None:
        return change, "That is no gain, so the draft model stays as it was and nothing was kept."
    return change, "The tuned draft model has learned from your chats, so it is as private as they are."


def _fine(share: float) -> str:
    """Return a share as a percentage with one place: what tuning brings may be small."""
    return f"{share * 100:.1f} %"


def made_of(card: Card) -> str:
    """Return how it was made, in one line."""
    return (
        f"{card.shape}, {card.quantisation}, {card.n_bytes / 1e6:,.1f} MB; {card.minutes:,.0f} minutes, "
        f"{card.n_chat_tokens:,} tokens of the target's own chats, {card.n_trained_tokens:,} trained"
    )


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %"


def _listed(words: list[str]) -> str:
    *rest, last = words
    return f"{', '.join(rest)} and {last}" if rest else last
