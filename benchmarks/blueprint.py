"""Share of complete buildings with and without a memory, by a simulated model.

    python -m benchmarks.blueprint [--seeds 1 2 3] [--problems 200]

The model draws a building right if it reads an example of the same family, otherwise in a share
GUESS of its replies. A share ERRORS of all replies has a mistake. A memory is made from orders of
three families. Orders of these families, or of the two other families, are then built with and
without the memory.
"""

import asyncio
import random
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import fmean

from agentfly_core.authoring.scoring import score
from agentfly_core.recipes.blueprint import tools
from agentfly_core.recipes.blueprint.agents import Architect
from agentfly_core.recipes.blueprint.demonstrations import interpreted, spoiled
from agentfly_core.recipes.blueprint.families import parts_of
from agentfly_core.recipes.blueprint.memory import INTERPRETER, remember
from agentfly_core.recipes.blueprint.rewards import building
from agentfly_core.records.trajectory import Problem, Scored, Trajectory
from agentfly_core.testing import Simulated, Visible, counted, problems_of, rollout_spec
from agentfly_core.testing.episodes import episode_specs, play_all, scripted
from benchmarks import harness

GUESS, ERRORS, REFLECTIONS = 0.1, 0.05, 3
REPEATED, OTHERS = ("room", "tower", "stairs"), ("bridge", "pyramid")
STEPS, ORDERS = 4, 24
"""The number of steps that fill the memory, and the number of orders in each step."""
COLUMNS = ("orders", "memory", "complete", "closed form")


def main() -> None:
    """Build all orders with and without a memory, and print the table."""
    options = harness.parser(__doc__, seeds=[1, 2, 3], problems=200).parse_args()
    shares = [asyncio.run(measured(seed, options.problems)) for seed in options.seeds]
    rows = []
    for name in shares[0]:
        values = fmean(one[name] for one in shares), expected(*name)
        rows.append([*name, *(f"{100 * value:.1f} %" for value in values)])
    harness.show(COLUMNS, rows, "mechanism, simulated")


def expected(orders: str, memory: str) -> float:
    """Return the share of complete buildings that is expected, in closed form.

    `orders` is "repeated" or "disjoint", and `memory` is "own" or "none".
    """
    tries = REFLECTIONS + 1
    guessed = 1 - (1 - (1 - ERRORS) * GUESS) ** tries
    if (orders, memory) != ("repeated", "own"):
        return guessed
    # with a mistake of the interpreter, the memory finds no example
    return (1 - ERRORS) * (1 - ERRORS**tries) + ERRORS * guessed


async def measured(seed: int, problems: int) -> Mapping[tuple[str, str], float]:
    """Return the shares of complete buildings: `{("repeated", "own"): 0.97, ...}`.

    The orders are of families in the memory ("repeated") or of two further families ("disjoint").
    They are built with the memory ("own") or without one ("none").
    """
    with tempfile.TemporaryDirectory() as folder:
        empty, own = Path(folder) / "0", await remembered(seed, Path(folder))
        return {
            (name, memory): await success(orders(seed + 1000, families, problems), path, seed)
            for name, families in (("repeated", REPEATED), ("disjoint", OTHERS))
            for memory, path in (("none", empty), ("own", own))
        }


async def remembered(seed: int, folder: Path) -> Path:
    """Return the memory after STEPS steps with orders of the families REPEATED."""
    drawn = orders(seed, REPEATED, STEPS * ORDERS)
    memories = [folder / str(step) for step in range(STEPS + 1)]
    for memory in memories:
        memory.mkdir()
    for step, (before, after) in enumerate(pairwise(memories)):
        part = drawn[step * ORDERS : (step + 1) * ORDERS]
        remember(before, *await played(part, before, seed), seed, after)
    return memories[-1]


def orders(seed: int, families: Sequence[str], size: int) -> list[Problem]:
    """Draw orders that alternate between these families."""
    use = "agentfly_core.recipes.blueprint.dataset:orders"
    made = problems_of(use, seed=seed, train=size, validation=1, test=1, families=families)
    return made["train"]


async def success(problems: Sequence[Problem], memory: Path, seed: int) -> float:
    """Return the share of orders with a complete building, using the memory in a folder."""
    trajectories, scores = await played(problems, memory, seed)
    answered = [
        scored.reward == 1
        for one, scored in zip(trajectories, scores, strict=True)
        if one.answered is not None
    ]
    assert len(answered) == len(problems)
    return fmean(answered)


async def played(
    problems: Sequence[Problem], memory: Path, seed: int
) -> tuple[list[Trajectory], list[Scored]]:
    """Play and score episodes of the simulated model, with the memory in a folder.

    Checks that the model reads no facts of the problems.
    """
    policy = Simulated([partial(drawing, seed)], ERRORS, mistaken, seed)
    spec = rollout_spec(
        tools.submit_blueprint,
        tools.build,
        tools.inspect,
        rewards=[building],
        agent=Architect(reflections=REFLECTIONS),
        max_turns=REFLECTIONS + 1,
        max_tokens=10_000,
        max_model_len=100_000,
        max_observation_tokens=10_000,
    )
    specs = episode_specs(*map(counted, problems))
    trajectories, *_ = await play_all(specs, replace(spec, memory=memory), scripted(policy))
    assert policy.facts_read == 0
    return trajectories, list(await score(trajectories, {building: 1.0}))


def drawing(seed: int, visible: Visible) -> str:
    """Reply as the simulated model: interpret an order, or draw a blueprint.

    The blueprint is right if the prompt has an example of the same family. Otherwise it is right
    with the probability GUESS.
    """
    if visible.speaker == INTERPRETER:
        return interpreted(visible.texts[-1])
    *shown, order = re.findall(r"Build the .*", visible.texts[1])
    lines = "\n".join(parts_of(order).values()).splitlines()
    families = {text.partition(":")[0] for text in shown}
    # the draw depends only on seed, order and attempt, so it is equal with and without a memory
    guess = random.Random(f"{seed} {order} {len(visible.texts)}").random() < GUESS
    right = guess or order.partition(":")[0] in families
    return "\n".join(lines if right else spoiled(lines, "omit", visible.draw))


def mistaken(visible: Visible, reply: str) -> str:
    """Return a reply with a mistake.

    In a blueprint, a line is missing. The reply of the interpreter is "?".
    """
    if visible.speaker == INTERPRETER:
        return "?"
    return "\n".join(spoiled(reply.splitlines(), "omit", visible.draw))


if __name__ == "__main__":
    main()
