"""What an answer's figures say about its text and its speed, in the window's and the terminal's words."""

from draftlight.engine.decoding import Mode
from draftlight.engine.metrics import SpeculationStats

NEAR_TIE = "another order of the same sums could have changed the token"
AUDIT_FAILED = (
    "Exact mode checked itself and found a difference: a verify's figures were not those of plain decoding. That place "
    "was put right and that width is used no more; what came before it may differ from plain decoding at near-ties."
)
_HARDLY_SLOWER = 0.95
_FEWEST_ROUNDS = 16  # in which the price of a plain step comes to follow how fast the machine is right now


def equality(stats: SpeculationStats, mode: str) -> str:
    """Return how sure it is that plain decoding says the same; empty where nothing was drafted or no mode is known."""
    if not stats.n_drafted or not mode:
        return ""
    if mode == Mode.FAST:
        return _counted(stats.n_near_ties, "near-tie")
    if stats.n_audit_failures:
        return f"exact, but {_counted(stats.n_audit_failures, 'audit')} failed of {stats.n_audits}"
    audited = {0: "", 1: ", audited once"}.get(stats.n_audits, f", audited {stats.n_audits} times")
    return f"exact{audited}"


def near_ties(stats: SpeculationStats, mode: str) -> str:
    """Return a sentence that explains FAST's near-ties; empty where there are none or they say nothing."""
    if mode != Mode.FAST or not stats.n_drafted or not stats.n_near_ties:
        return ""
    places = "a place" if stats.n_near_ties == 1 else "places"
    return f"{equality(stats, mode)}: {places} where {NEAR_TIE}."


def speed_up(stats: SpeculationStats) -> str:
    """Return the answer's speed against plain decoding, estimated from the measured cost of plain steps.

    Empty where nothing was measured, and where nothing was drafted or the answer was short: what is left then is the
    machine's own ups and downs.
    """
    if not stats.saved_ms or not stats.n_drafted or stats.n_rounds < _FEWEST_ROUNDS or stats.decode_ms <= 0:
        return ""
    ratio = (stats.decode_ms + stats.saved_ms) / stats.decode_ms
    return f"about {ratio:.1f}x plain, estimated" if ratio >= _HARDLY_SLOWER else f"about {ratio:.2f}x plain, estimated"


def _counted(n: int, thing: str) -> str:
    return f"{n or 'no'} {thing}{'' if n == 1 else 's'}"
