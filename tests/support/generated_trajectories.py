"""Generated trajectories for the learner, and their outcomes."""

import random

from agentfly_core.records.trajectory import Scored
from agentfly_core.rl.batch import pack
from agentfly_core.rl.outcomes import outcomes
from agentfly_core.testing.trajectories import trajectory, turn


def earned(trajectories, rewards, batch=None, by_turn=None, parts=None, weights=None, greedy=None):
    """Outcomes of trajectories from one reward each; optional rewards by turn and parts by name."""
    parts = parts or [{}] * len(trajectories)
    by_turn = by_turn or [()] * len(trajectories)
    scores = [
        Scored(t.id, part, tuple(turns), float(reward))
        for t, part, turns, reward in zip(trajectories, parts, by_turn, rewards, strict=True)
    ]
    return outcomes(trajectories, scores, greedy or {}, weights or {}, batch or pack(trajectories))


def crowd(groups, size, vocabulary=128, seed=0):
    """`groups` x `size` trajectories of one or two turns, of random tokens and lengths; a group has
    one prompt.
    """
    dice = random.Random(seed)

    def reply():
        tokens = dice.sample(range(vocabulary), dice.randint(1, 8))
        return {token: -dice.uniform(4.0, 8.0) for token in tokens}

    def prompt():
        return [dice.randrange(vocabulary) for _ in range(dice.randint(2, 12))]

    def turns(opening):
        return turn(opening, reply()), *(turn(prompt(), reply()) for _ in range(dice.randint(0, 1)))

    openings = [prompt() for _ in range(groups)]
    return [
        trajectory(*turns(openings[g]), name=f"t{g}-{i}", group=f"g{g}")
        for g in range(groups)
        for i in range(size)
    ]
