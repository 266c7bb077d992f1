"""An answer's figures in words. Knows no widget."""

from draftlight.chat.figures import equality, speed_up
from draftlight.engine.metrics import SpeculationStats


def speed(stats: SpeculationStats) -> str:
    """Return the speed of the answer."""
    return f"{stats.tokens_per_second:.1f} tok/s" if stats.tokens_per_second else "no speed yet"


def accepted(stats: SpeculationStats) -> str:
    """Return the share of drafted tokens that were accepted."""
    return f"{100 * stats.acceptance_rate:.0f} % accepted" if stats.n_drafted else "nothing drafted"


def efficiency(stats: SpeculationStats) -> str:
    """Return how many tokens each call of the target gave."""
    return f"{stats.block_efficiency:.2f} tokens per target call"


def summary(stats: SpeculationStats, mode: str) -> str:
    """Return one line about a whole answer made in that mode; empty where nothing was generated."""
    if not stats.n_committed:
        return ""
    tokens = "1 token" if stats.n_committed == 1 else f"{stats.n_committed:,} tokens"
    shown = (tokens, speed(stats), accepted(stats), efficiency(stats), equality(stats, mode), speed_up(stats))
    return " · ".join(filter(None, shown))
