"""The screen's own words for figures; what the terminal says too is in forge/figures.py."""

from draftlight.forge.figures import card_sentence, is_worth_it
from draftlight.forge.reports import Card, Outlook

_MINUTE = 60
_HARDLY_A_GAIN = 1.1
_COMMAND_FOLLOWS = " with: "


def percent(share: float) -> str:
    """Return a share as a percentage."""
    return f"{100 * share:.0f} %"


def ratio(speed_up: float) -> str:
    """Return a speed-up; where it is a loss or hardly a gain, with two places."""
    return f"{speed_up:.2f}x" if speed_up < _HARDLY_A_GAIN else f"{speed_up:.1f}x"


def count(n: int) -> str:
    """Return a number of tokens, short."""
    if n >= 1_000_000:  # noqa: PLR2004 - mega
        return f"{n / 1e6:.1f} million"
    return f"{n:,}"


def duration(minutes: float) -> str:
    """Return a length of time."""
    hours, rest = divmod(max(1, round(minutes)), 60)
    return " ".join(filter(None, (f"{hours} h" if hours else "", f"{rest} min" if rest else "")))


def time_left(seconds: float) -> str:
    """Return how long something still takes."""
    return "less than a minute left" if seconds < _MINUTE else f"{duration(seconds / _MINUTE)} left"


def judgement(outlook: Outlook) -> str:
    """Return what an outlook comes to, as a heading."""
    if is_worth_it(outlook):
        return f"Answers could come {ratio(outlook.expected)} as fast"
    return "It will most likely not pay here" if outlook.most > 1.0 else "It cannot make this target faster here"


def worth(card: Card) -> str:
    """Return what the draft model is worth, as a sentence."""
    sentence = card_sentence(card)
    measured = "" if card.measured is not None else ", not measured yet"
    return f"{sentence[0].upper()}{sentence[1:]}{measured}."


def advice(card: Card) -> str:
    """Return what to make of it."""
    speed_up = card.expected if card.measured is None else card.measured
    if speed_up > 1.0:
        return "With this draft model answers come faster, and they stay the same."
    return "On this computer answers come slower with it; it is for watching and learning. Answers stay the same."


def command_in(remedy: str) -> str:
    """Return the command that a remedy ends with, empty where it names none: "... with: COMMAND"."""
    return remedy.partition(_COMMAND_FOLLOWS)[2].strip()
