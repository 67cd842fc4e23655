"""Problems that the library reasoning-gym generates: logic, arithmetic, games and text (arXiv
2505.24760).
"""

import ast
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any

from agentfly_core.records.generated_dataset import generated
from agentfly_core.records.trajectory import Problem
from agentfly_core.rewards.reasoning_gym import created
from agentfly_core.system.formats import hashing
from agentfly_core.system.formats.text import counted

ROUNDS = 20
GymEntry = Mapping[str, Any]


@generated
def reasoning_gym(
    seed: int,
    train: int,
    validation: int,
    test: int,
    dataset: str,
    config: dict[str, Any] | None = None,
) -> dict[str, list[Problem]]:
    """Make problems for each split from one of the datasets of reasoning-gym, such as

        Problem("chain_sum-9f2c41d07a3be518", "State the final answer to ... 41 + 58 =", {
            "answer": "99", "expression": "41 + 58", "dataset": "chain_sum", "config": {...},
            "entry": "{'question': ...}",
        })

    Each prompt is in only one split. Each problem has the following facts:

    - `answer`: the right answer, or null if many answers are right
    - the texts and numbers in the metadata of the generated entry, here `expression`
    - `dataset`, `config` and `entry`, which the reward `rewards.reasoning_gym` needs

    Raises ValueError if the dataset is unknown, if `config` is wrong, or if the dataset cannot
    generate enough problems.
    """
    draw = partial(created, dataset, config or {})
    sizes = {"train": train, "validation": validation, "test": test}
    seen: set[str] = set()
    splits = {}
    for split, size in sizes.items():
        # generators with small configs repeat problems, so several seeds are tried
        seeds = (hashing.seed(seed, "reasoning-gym", split, n) % 2**32 for n in range(ROUNDS))
        made = chain.from_iterable(draw(seed=one, size=max(1, size)) for one in seeds)
        entries: dict[str, GymEntry] = {}
        while len(entries) < size and (entry := next(made, None)):
            if entry["question"] not in seen:
                entries.setdefault(entry["question"], entry)
        if len(entries) < size:
            raise ValueError(
                f"data.{split} is {size}, but {dataset!r} made only "
                f"{counted(len(entries), 'different problem')} in {ROUNDS} attempts; "
                f"lower data.{split} or widen `config`."
            )
        seen |= entries.keys()
        splits[split] = [_problem(entry, dataset, config or {}) for entry in entries.values()]
    return splits


def _problem(entry: GymEntry, dataset: str, config: dict[str, Any]) -> Problem:
    question, metadata = str(entry["question"]), entry["metadata"]
    shown = {key: value for key, value in metadata.items() if isinstance(value, str | int | float)}
    needed = {"dataset": dataset, "config": config, "entry": stored(entry)}
    facts = {**shown, "answer": entry["answer"], **needed}
    return Problem(f"{dataset}-{hashing.short(question)}", question, facts)


def stored(entry: GymEntry) -> str:
    """Return an entry of reasoning-gym as a Python literal, because JSON would change tuples.

    Metadata that cannot be written as a literal is removed.
    """
    metadata = {}
    for key, value in entry["metadata"].items():
        with suppress(ValueError, SyntaxError):
            if ast.literal_eval(repr(value)) == value:
                metadata[key] = value
    return repr({**entry, "metadata": metadata})
