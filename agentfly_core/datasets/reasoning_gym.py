"""Generated problems of reasoning-gym: logic, arithmetic, games and text (arXiv 2505.24760)."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from agentfly_core.records.generated_dataset import generated
from agentfly_core.records.trajectory import Problem
from agentfly_core.rewards.reasoning_gym import created
from agentfly_core.system.formats import hashing

ROUNDS = 20
LOOKED_AT = 8
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
    """Problems for each split of one of its datasets, such as

        Problem("chain_sum-9f2c41d07a3be518", "State the final answer to ... 41 + 58 =", {
            "answer": "99", "expression": "41 + 58", "dataset": "chain_sum", "config": {...},
            "entry": "{'question': ...}",
        })

    Each split has a seed of its own, and no prompt of another one. Facts are the right answer,
    which is null where many are right, what of the entry's metadata is a text or a number, and
    what `rewards.reasoning_gym` needs. Raises ValueError for a dataset that there is not, for a
    wrong `config`, for more problems than it can make, and for a scorer that pays for any answer.
    """
    draw = partial(created, dataset, config or {})
    sizes = {"train": train, "validation": validation, "test": test}
    seen: set[str] = set()
    splits = {}
    for split, size in sizes.items():
        entries: list[GymEntry] = []
        for number in range(ROUNDS):
            of_round = hashing.seed(seed, "reasoning-gym", split, number) % 2**32
            entries += _unseen(draw(seed=of_round, size=max(1, size)), size - len(entries), seen)
        if len(entries) < size:
            raise ValueError(
                f"data.{split} asks for {size} problems of {dataset!r}, and it made {len(entries)} "
                f"with prompts of their own in {ROUNDS} rounds: ask for fewer, or widen its config."
            )
        splits[split] = list[Problem]()
        for entry in entries:
            question, metadata = str(entry["question"]), entry["metadata"]
            shown = {key: v for key, v in metadata.items() if isinstance(v, str | int | float)}
            needed = {"dataset": dataset, "config": config or {}, "entry": stored(entry)}
            facts = {**shown, "answer": entry["answer"], **needed}
            splits[split].append(Problem(f"{dataset}-{hashing.short(question)}", question, facts))
    _require_judgement(draw(seed=seed % 2**32, size=LOOKED_AT), dataset)
    return splits


def _unseen(gym: Iterable[GymEntry], wanted: int, seen: set[str]) -> Iterator[GymEntry]:
    """Up to `wanted` entries whose prompts were not `seen`, and are from then on."""
    for entry in gym if wanted else ():
        if entry["question"] not in seen:
            seen.add(entry["question"])
            yield entry
            wanted -= 1
        if not wanted:
            return


def stored(entry: GymEntry) -> str:
    """An entry as a Python literal, which keeps tuples, without metadata that is no literal."""
    metadata = {}
    for key, value in entry["metadata"].items():
        with suppress(ValueError, SyntaxError):
            if ast.literal_eval(repr(value)) == value:
                metadata[key] = value
    return repr({**entry, "metadata": metadata})


def _require_judgement(gym: Any, dataset: str) -> None:
    """Raise ValueError for a scorer that accepts one answer for all problems, or changes with
    stored entries.
    """
    entries = [*gym]
    answered = [entry for entry in entries if isinstance(entry["answer"], str)]
    for answer in {"?", *(entry["answer"] for entry in answered[:1])}:
        others = [entry for entry in entries if entry["answer"] != answer]
        if others and all(_is_right(gym, answer, entry) for entry in others):
            raise ValueError(
                f"The scorer of {dataset!r} gives 1 to the answer {answer!r} whatever is asked: "
                "there is nothing to be learned from it. Choose another dataset."
            )
    for entry in answered:
        if not _is_right(gym, entry["answer"], ast.literal_eval(stored(entry))):
            raise ValueError(
                f"The scorer of {dataset!r} does not give 1 to the right answer "
                f"{entry['answer']!r:.80} of a stored problem. Choose another dataset."
            )


def _is_right(gym: Any, answer: str, entry: GymEntry) -> bool:
    try:
        return bool(gym.score_answer(answer, entry) >= 1)
    except Exception:  # scorers raise anything of an answer that is not of their kind
        return False
