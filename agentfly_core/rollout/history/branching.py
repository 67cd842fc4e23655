"""The rule that decides whether an episode is copied before a reply (`rollout.branching`)."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean


@dataclass(frozen=True, slots=True)
class ForkRule:
    """Decides whether an episode forks, i.e. is copied, before a reply.

    Example: `ForkRule(k=20, alpha=0.5, beta=0.2, tau=0.5, draws=True, vocabulary=49152)`. With
    `draws`, an episode forks at random, with the probability that the method `probability` returns.
    Without `draws`, it forks if this probability is above `tau`. The probability is `alpha` plus a
    term with the factor `beta`. This term compares the entropies of two replies, the speaker's
    first reply and the current reply. Only the first `k` tokens of each reply count.
    `vocabulary` is the vocabulary size.
    """

    k: int
    alpha: float
    beta: float
    tau: float
    draws: bool
    vocabulary: int

    def probability(self, first: Sequence[float], now: Sequence[float]) -> float:
        """Compute the probability of a fork at a speaker's current reply.

        The probability is alpha + beta (H - H_first) / log(vocabulary), limited to [0, 1]. H is the
        mean of the token entropies `now` of the current reply, in nats. H_first is the mean of the
        token entropies `first` of the speaker's first reply. The means are over the first `k`
        tokens of each reply.
        """
        if not self.beta:
            return self.alpha
        rise = fmean(now[: self.k]) - fmean(first[: self.k])
        return min(1.0, max(0.0, self.alpha + self.beta * rise / math.log(self.vocabulary)))

    def forks(self, first: Sequence[float], now: Sequence[float], seed: int) -> bool:
        """Return whether to fork before a speaker's current reply.

        `first` and `now` are the token entropies of the speaker's first and current reply. `seed`
        seeds the random draw, which is made only if the field `draws` is true.
        """
        bound = random.Random(seed).random() if self.draws else self.tau
        return self.probability(first, now) > bound
