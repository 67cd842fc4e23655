"""The decision of `rollout.branching`: whether an episode forks before a reply."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean


@dataclass(frozen=True, slots=True)
class ForkRule:
    """The settings of `rollout.branching`: `ForkRule(k=20, alpha=0.5, beta=0.2, tau=0.5,
    draws=True, vocabulary=49152)`.

    If it `draws`, it forks with its probability, else if this is above `tau`. With `beta` 0 no
    entropies are read. `vocabulary` is the number of tokens.
    """

    k: int
    alpha: float
    beta: float
    tau: float
    draws: bool
    vocabulary: int

    def probability(self, first: Sequence[float], now: Sequence[float]) -> float:
        """The probability to fork, from the entropies of a speaker's first reply and of the reply
        now, in nats: alpha + beta (H - H_first) / log(vocabulary), between 0 and 1.
        """
        if not self.beta:
            return self.alpha
        rise = fmean(now[: self.k]) - fmean(first[: self.k])
        return min(1.0, max(0.0, self.alpha + self.beta * rise / math.log(self.vocabulary)))

    def forks(self, first: Sequence[float], now: Sequence[float], seed: int) -> bool:
        """Whether to fork before the reply now; the seed is for drawing."""
        bound = random.Random(seed).random() if self.draws else self.tau
        return self.probability(first, now) > bound
