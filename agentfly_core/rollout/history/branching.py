"""The decision of `rollout.branching`: whether an episode forks before a reply."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

BranchingMode = Literal["entropy", "threshold", "random", "never"]


@dataclass(frozen=True, slots=True)
class ForkRule:
    """The settings of `rollout.branching`: `ForkRule("entropy", k=20, alpha=0.5, beta=0.2, tau=0.5,
    vocabulary=49152)`; `vocabulary` is the number of tokens.
    """

    mode: BranchingMode
    k: int
    alpha: float
    beta: float
    tau: float
    vocabulary: int

    @property
    def reads_entropies(self) -> bool:
        """Whether the decision depends on entropies."""
        return self.mode in ("entropy", "threshold")

    def probability(self, first: Sequence[float], now: Sequence[float]) -> float:
        """The probability to fork, from the entropies of a speaker's first reply and of the reply
        now, in nats: alpha + beta (H - H_first) / log(vocabulary), between 0 and 1.
        """
        if not self.reads_entropies:
            return self.alpha if self.mode == "random" else 0.0
        rise = fmean(now[: self.k]) - fmean(first[: self.k])
        return min(1.0, max(0.0, self.alpha + self.beta * rise / math.log(self.vocabulary)))

    def forks(self, first: Sequence[float], now: Sequence[float], seed: int) -> bool:
        """Whether to fork, drawn by the seed."""
        probability = self.probability(first, now)
        if self.mode == "threshold":
            return probability > self.tau
        return random.Random(seed).random() < probability
