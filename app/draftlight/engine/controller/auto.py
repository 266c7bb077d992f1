"""AUTO: each round drafts as many tokens as are worth their time, none included.

Let E be the tokens a round is expected to commit, C the seconds it costs, and rho the tokens a second that can be kept
up. The round's length is the one that maximises E - rho C (Dinkelbach 1967 for E / C). Before each further token the
gain of going on is weighed, looking ahead over the whole staircase of verify costs: the next row may be dear and the
one after it free. When drafting is done the tail that is not worth its rows is cut off. Any such rule leaves the text
as it is, because with shared noise the target's token does not depend on what was drafted.
"""

from collections.abc import Collection, Iterator
from itertools import repeat

from draftlight.engine.controller.base import Offers, Outlook
from draftlight.engine.controller.experience import Experience
from draftlight.engine.costs import DraftTrial
from draftlight.engine.drafting.base import Drafted, Offer
from draftlight.engine.events import DraftSource, Reasoning, RoundVerified, TokenFate

_LEAST_GAIN = 0.03  # tokens a draft must promise before it is begun
_UNLIKELY = 0.2  # chance that the whole draft is accepted, below which no further row can be worth its price
_NEAR = 8  # tokens behind, up to which catching up is charged to the round that does it
_SHORT_COPY = 3  # recurring tokens, below which a copy does not take the place of a draft model that is at hand
_CAUTION = 1.5  # times what reading a long text costs must come back: it is spent at once, the gain is a hope
_HORIZON = 128  # tokens over which a longer way to catch up has to pay
_REVIEW_LAG = 24  # tokens behind, from which a review can teach something
_REVIEW_COST = 2.0  # times what reading takes: the rows of logits and their laws are not free
REVIEW_WINDOW = 64  # tokens a review reads where the draft model is further behind


class AutoLength:
    """Weighs every token of a draft. One generation's; what it learns stays in the pair's Experience."""

    def __init__(self, experience: Experience, *, greedy: bool) -> None:
        """Go on from what the pair's earlier answers taught, at temperature 0 (`greedy`) or above."""
        self._experience = experience
        self._prices = experience.prices
        self._acceptance = experience.acceptance(greedy=greedy)
        self._outlook = Outlook(0, 0, (0,))
        self._lengths = frozenset({0})
        self._verifies = [0.0]  # seconds by number of drafted tokens
        self._plain_seconds = 0.0
        self._proposals: list[Drafted] = []
        self._chances: list[float] = []
        self._expected = [1.0]  # E by number of drafted tokens
        self._draft_seconds = 0.0
        self._reading = 0.0  # what the draft model's next token will cost
        self._rho = 0.0
        self._reviewed_at = 0  # tokens of the text at the last review
        self._review_seconds = 0.0  # what it was expected to take
        self._planned = 1.0  # tokens a second of the best fixed length
        self.off_reason = ""
        self.reasoning: Reasoning | None = None

    def begin_round(self, outlook: Outlook) -> None:
        """Start a round."""
        self._outlook = outlook
        self._lengths = frozenset(outlook.lengths)
        self._verifies = [
            self._prices.verify(k, outlook.width(k), outlook.n_tokens) for k in range(outlook.lengths[-1] + 1)
        ]
        self._plain_seconds = self._verifies[0]
        self._proposals.clear()
        self._chances.clear()
        self._expected = [1.0]
        self._draft_seconds = 0.0
        self.off_reason = ""
        self.reasoning = None
        self._rho = 0.0

    def asks(self, sources: Collection[DraftSource]) -> Collection[DraftSource]:
        """Return all: they compete."""
        return sources

    def wants_review(self, offers: Offers) -> int:
        """Return how many of the last tokens the draft model shall be tried on, because it has long been left out."""
        offer = offers.get(DraftSource.MODEL)
        if self._proposals or offer is None or not offer.ready or offer.lag < _REVIEW_LAG:
            return 0
        if self._outlook.n_tokens < self._reviewed_at + _REVIEW_LAG:  # the same tokens would teach nothing new
            return 0
        n_read = min(offer.lag, REVIEW_WINDOW)
        self._review_seconds = _REVIEW_COST * self._prices.draft(n_read, n_read)
        if not self._experience.may_review(self._review_seconds):
            return 0
        self._reviewed_at = self._outlook.n_tokens
        return n_read

    def reviewed(self, trials: list[DraftTrial], seconds: float) -> None:
        """Learn from a review that took so long."""
        self._experience.overran(max(0.0, seconds - self._review_seconds))
        for trial in trials:
            self._acceptance.learn_trial(trial)

    def next_source(self, offers: Offers) -> DraftSource | None:
        """Return the source whose next tokens promise most, if that is more than stopping here."""
        n = len(self._proposals)
        if not n:
            self._rho = self._opportunity(offers)
        stop = max(self._value(k, 0.0) for k in self._outlook.lengths if k <= n)
        best, best_value = None, stop + (0.0 if n else _LEAST_GAIN)
        for source, offer in self._worth_weighing(offers):
            if (value := self._going_on(source, offer)) > best_value:
                best, best_value = source, value
        if best is DraftSource.MODEL:
            self._reading = self._draft_cost(offers[best])
        if best is None and not n:
            self.off_reason = self._why_not(offers)
        return best

    def drafted(self, proposal: Drafted) -> None:
        """Take note of a proposal: what it cost, and how likely it is to be accepted."""
        if proposal.source is DraftSource.MODEL:
            self._draft_seconds += self._reading
        chance = self._acceptance.of(proposal)
        self._proposals.append(proposal)
        self._chances.append(chance)
        survival = self._survival * chance if len(self._chances) > 1 else chance
        self._expected.append(self._expected[-1] + survival)

    def n_submitted(self) -> int:
        """Return the length that maximises E - rho C now that the draft is there."""
        n = len(self._proposals)
        best = max((k for k in self._outlook.lengths if k <= n), key=lambda k: self._value(k, 0.0))
        plain = self._plain_seconds
        cost = (self._draft_seconds + self._verifies[best]) / plain
        self.reasoning = Reasoning(
            acceptance=tuple(round(chance, 4) for chance in self._chances),
            expected=round(self._expected[best], 4),
            cost=round(cost, 4),
            rate=round(self._rho * plain, 4),
        )
        return best

    def observe(self, report: RoundVerified) -> None:
        """Learn from a finished round."""
        for proposal, token in zip(self._proposals, report.drafted, strict=False):
            if token.fate is TokenFate.NOT_REACHED:
                break
            self._acceptance.learn(proposal, token.fate is TokenFate.ACCEPTED)
        self._proposals.clear()
        self._experience.pace.add(len(report.committed), report.draft_ms + report.verify_ms + report.host_ms)

    def _worth_weighing(self, offers: Offers) -> Iterator[tuple[DraftSource, Offer]]:
        """Yield the offers to choose among.

        Where the text recurs a draft model is right more often than elsewhere, so by its average a short copy would
        take its place too often.
        """
        model = offers.get(DraftSource.MODEL)
        at_hand = model is not None and model.ready and model.lag <= _NEAR
        for source, offer in offers.items():
            if offer.ready and not (source is DraftSource.NGRAM and at_hand and offer.matched < _SHORT_COPY):
                yield source, offer

    @property
    def _survival(self) -> float:
        """The chance that the whole draft so far is accepted."""
        return self._expected[-1] - self._expected[-2] if len(self._expected) > 1 else 1.0

    def _value(self, k: int, more_seconds: float) -> float:
        """E - rho C of verifying the first k tokens; the time that drafting them took is gone either way."""
        return self._expected[k] - self._rho * (self._verifies[k] + more_seconds)

    def _going_on(self, source: DraftSource, offer: Offer) -> float:
        """Return the best E - rho C that can be reached by drafting on from this source."""
        n, longest = len(self._proposals), self._outlook.lengths[-1]
        expected, survival = self._expected[-1], self._survival
        seconds, best = 0.0, float("-inf")
        for k, (chance, cost) in zip(range(n + 1, longest + 1), self._ahead(source, offer), strict=False):
            survival *= chance
            expected += survival
            seconds += cost
            if k in self._lengths:
                value = expected - self._rho * (self._verifies[k] + seconds)
                if value > best:
                    best = value
                elif survival < _UNLIKELY:
                    break
        return best

    def _ahead(self, source: DraftSource, offer: Offer) -> Iterator[tuple[float, float]]:
        """Yield chance and cost of this source's next tokens, one after another."""
        if source is DraftSource.NGRAM:  # not as long a copy as it will be then: it might not have been followed
            yield from repeat((self._acceptance.of_copy(offer.matched, offer.agreeing), 0.0))
        chance = self._acceptance.of_model()
        yield chance, self._draft_cost(offer)
        one = self._prices.draft(1, self._outlook.n_tokens)
        while True:
            yield chance, one

    def _draft_cost(self, offer: Offer) -> float:
        """Seconds charged for the draft model's next token: catching up a long way is charged to all that follows."""
        context = self._outlook.n_tokens
        if not offer.lag:  # drafted ahead
            return 0.0
        if offer.lag <= _NEAR:
            return self._prices.draft(offer.lag, context)
        one = self._prices.draft(1, context)
        saved = self._plain_seconds - 1.0 / self._planned  # on each further token
        reading = self._prices.draft(offer.lag, context // 2) - one
        pays = min(self._outlook.n_left, _HORIZON) * saved > _CAUTION * reading
        return one if pays else float("inf")

    def _opportunity(self, offers: Offers) -> float:
        """Return rho, the tokens a second that time is worth now.

        That is the rate of the best fixed length, by what is known of the draft model; while the text is being copied,
        the rate that the last rounds achieved, as far as copying on can keep it up. A rate that cannot be kept up would
        make every draft look too slow and leave plain steps, the slowest of all.
        """
        planned = 1.0 / self._plain_seconds
        if DraftSource.MODEL in offers and self._prices.can_draft:
            one = self._prices.draft(1, self._outlook.n_tokens)
            planned = max(planned, self._best_ratio(repeat((self._acceptance.of_model(), one))))
        self._planned = planned
        copy = offers.get(DraftSource.NGRAM)
        if copy is None or not copy.ready:
            return planned
        copying = self._best_ratio(self._ahead(DraftSource.NGRAM, copy))
        return max(planned, min(copying, self._experience.pace.rate(self._plain_seconds)))

    def _best_ratio(self, ahead: Iterator[tuple[float, float]]) -> float:
        """Return the largest E / C, tokens a second, among the lengths allowed."""
        expected, survival, seconds, best = 1.0, 1.0, 0.0, 1.0 / self._plain_seconds
        for k, (chance, cost) in zip(range(1, self._outlook.lengths[-1] + 1), ahead, strict=False):
            survival *= chance
            expected += survival
            seconds += cost
            if k in self._lengths:
                ratio = expected / (self._verifies[k] + seconds)
                if ratio > best:
                    best = ratio
                elif survival < _UNLIKELY:
                    break
        return best

    def _why_not(self, offers: Offers) -> str:
        """Say in a sentence why this round goes without a draft."""
        silences = [offer.silence for offer in offers.values() if not offer.ready]
        model = offers.get(DraftSource.MODEL)
        if model is None or not model.ready:
            return silences[0] if silences else "nothing in the text so far is worth copying"
        gain = self._going_on(DraftSource.MODEL, model) - self._value(0, 0.0)
        chance = self._acceptance.of_model()
        sentence = (
            f"drafting does not pay now: the draft model's tokens are accepted with a chance of {chance:.0%}, and "
        )
        if gain == float("-inf"):
            return f"{sentence}it would first have to read {model.lag:,} tokens"
        return f"{sentence}at these costs a draft would bring {gain:+.2f} tokens"
