"""Trajectories made up for the learner: what was given and what was sampled, in one line each."""

import random

from agentfly_core.records.trajectory import Ending, Given, Message, Problem, Sampled, Scored, Trajectory, Turn
from agentfly_core.rl.batch import pack
from agentfly_core.rl.outcomes import outcomes

SAID = Message("assistant", "")


def turn(given, *spans, fresh=False):
    """A turn from tokens; each span of the reply is a dict of its tokens and their log-probabilities."""
    sampled = tuple(Sampled(tuple(span), tuple(span.values()), 0, "stop") for span in spans)
    return Turn((), Given(tuple(given)), SAID, sampled, fresh)


def played(*turns, name="t0", group="g0"):
    """A trajectory of these turns."""
    return Trajectory(
        id=name,
        episode=name,
        problem=Problem(f"problem-{group}", "?"),
        group=group,
        chain=0,
        agent="main",
        role="train",
        turns=tuple(turns),
        closing=(),
        ending=Ending.NO_TOOL_CALLS,
        error=None,
        observed={},
        seed=0,
    )


def earned(trajectories, rewards, batch=None, by_turn=None, parts=None, weights=None, greedy=None):
    """What trajectories earned: a number each, for some by turn, and for some the rewards behind it by name."""
    parts = parts or [{}] * len(trajectories)
    by_turn = by_turn or [()] * len(trajectories)
    scores = [
        Scored(t.id, part, tuple(turns), float(reward))
        for t, part, turns, reward in zip(trajectories, parts, by_turn, rewards, strict=True)
    ]
    return outcomes(trajectories, scores, greedy or {}, weights or {}, batch or pack(trajectories))


def crowd(groups, size, vocabulary=128, seed=0):
    """`groups` x `size` trajectories of one or two turns, of random tokens and lengths; a group has one prompt."""
    dice = random.Random(seed)

    def reply():
        tokens = dice.sample(range(vocabulary), dice.randint(1, 8))
        return {token: -dice.uniform(4.0, 8.0) for token in tokens}

    def prompt():
        return [dice.randrange(vocabulary) for _ in range(dice.randint(2, 12))]

    def turns(opening):
        return turn(opening, reply()), *(turn(prompt(), reply()) for _ in range(dice.randint(0, 1)))

    openings = [prompt() for _ in range(groups)]
    return [played(*turns(openings[g]), name=f"t{g}-{i}", group=f"g{g}") for g in range(groups) for i in range(size)]
