"""The rule of `rollout.branching`. It decides whether an episode forks before a reply."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean


@dataclass(frozen=True, slots=True)
class ForkRule:
    """The settings of `rollout.branching`.

    Example: `ForkRule(k=20, alpha=0.5, beta=0.2, tau=0.5, draws=True, vocabulary=49152)`. With
    `draws`, an episode forks at random with the computed probability. Without `draws`, it forks if
    the probability is above `tau`. If `beta` is 0, entropies are not used. `k` is the number of
    tokens of a reply over which entropies are averaged. `vocabulary` is the size of the vocabulary.
    """

    k: int
    alpha: float
    beta: float
    tau: float
    draws: bool
    vocabulary: int

    def probability(self, first: Sequence[float], now: Sequence[float]) -> float:
        """Compute the probability of a fork before a speaker's current reply.

        The probability is alpha + beta (H - H_first) / log(vocabulary), limited to [0, 1]. H and
        H_first are mean token entropies in nats: H of the current reply, H_first of the speaker's
        first reply.
        """
        if not self.beta:
            return self.alpha
        rise = fmean(now[: self.k]) - fmean(first[: self.k])
        return min(1.0, max(0.0, self.alpha + self.beta * rise / math.log(self.vocabulary)))

    def forks(self, first: Sequence[float], now: Sequence[float], seed: int) -> bool:
        """Return whether to fork before the current reply. `seed` seeds the random draw."""
        bound = random.Random(seed).random() if self.draws else self.tau
        return self.probability(first, now) > bound
