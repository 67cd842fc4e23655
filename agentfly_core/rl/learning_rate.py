"""Learning-rate schedules: the rate of each step as a pure function of its number."""

import math

from agentfly_core.config.experiment import Update


def learning_rate(update: Update, step: int, steps: int) -> float:
    """The rate of step 1, 2, ... of `steps`; three warm-up steps have 1/4, 2/4 and 3/4 of it.

    After the warm-up it equals transformers' schedule at `step - 1`.
    """
    warmup = update.warmup_steps
    if step <= warmup:
        return update.learning_rate * step / (warmup + 1)
    done = (step - 1 - warmup) / max(steps - warmup, 1)
    share = {
        "constant": 1.0,
        "linear": 1.0 - done,
        "cosine": 0.5 * (1.0 + math.cos(math.pi * done)),
    }
    return update.learning_rate * share[update.lr_scheduler_type]
