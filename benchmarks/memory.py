"""Held-out success of a policy with its memory, an empty memory and a memory of other problems.

    python -m benchmarks.memory --seeds 3

Each key has a secret digit, which can only be learned from rewards. A warm start (`school`) teaches
`nano` to copy a note, or to guess without a note. Runs with `update: none` then guess, and remember
the digits of rewarded guesses. Held-out problems ask for the same keys in other words. Results of
three seeds on two CPU cores, with 200 problems each:

    seed  empty  own memory  memory of other keys
    0     8.0 %      91.5 %                 8.0 %
    1    10.0 %      94.0 %                10.0 %
    2     8.0 %      94.0 %                 8.0 %
"""

import argparse
import json
import os
import random
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from agentfly_core import (
    Conversation,
    Ending,
    Episode,
    Message,
    Problem,
    Scored,
    Trajectory,
    evaluate,
    load_experiment,
    train,
)

KEYS = 40
TEST = 200
HERE = "benchmarks.memory"
LIMITS = {"max_turns": 1, "max_tokens": 4, "max_model_len": 64}


def codes(
    seed: int, train: int, validation: int, test: int, book: str = "a", hints: bool = False
) -> dict[str, list[Problem]]:
    """Make questions about the secret digits of the keys of a book, which has KEYS keys.

    With `hints`, half of the questions have a fact `hint` with the answer.
    """
    rng = random.Random(f"{seed} {book}")
    digits = {f"{book}{key}": str(rng.randrange(10)) for key in range(KEYS)}

    def asked(split: str, count: int) -> list[Problem]:
        problems = []
        for number in range(count):
            key = [*digits][number % KEYS]
            hint = str(number // 2 % 10) if hints and number % 2 else ""
            facts = {"key": key, "answer": hint or digits[key], "hint": hint}
            problems.append(Problem(f"{split}-{number}", f"{split} {number}: {key}?", facts))
        return problems

    sizes = {"train": train, "validation": validation, "test": test}
    return {split: asked(split, count) for split, count in sizes.items()}


async def copies_or_guesses(conversation: Conversation) -> str:
    """Reply with the digit of the note, or with a random digit if the note is missing."""
    note = conversation.problem.facts["hint"]
    return str(note or conversation.seed % 10)


async def reader(episode: Episode) -> Ending:
    """Play an episode: show the model the note about the problem's key, or the text "no note"."""
    file, facts = episode.memory / "notes.json", episode.problem.facts
    notes = json.loads(file.read_text()) if file.exists() else {}
    note = facts["hint"] or notes.get(facts["key"])
    await episode.reply(Message("user", f"note {note}" if note else "no note"))
    return Ending.NO_TOOL_CALLS


def remember(
    before: Path,
    trajectories: Sequence[Trajectory],
    scores: Sequence[Scored],
    seed: int,
    folder: Path,
) -> None:
    """Write the notes with the rewarded digits of these episodes added.

    `before` is the folder of the old notes, and `folder` of the new notes.
    """
    file = before / "notes.json"
    notes = json.loads(file.read_text()) if file.exists() else {}
    for played, score in zip(trajectories, scores, strict=True):
        if score.reward == 1 and played.answer:
            notes[played.problem.facts["key"]] = played.answer.strip()
    (folder / "notes.json").write_text(json.dumps(notes, sort_keys=True))


@dataclass(frozen=True)
class Gains:
    """The held-out success of a policy with each memory, as in the table: `Gains(0.11, 0.95,
    0.11)`.

    The memory is empty, has the digits of the same keys, or has the digits of different keys.
    """

    empty: float
    own: float
    others: float


def experiment(folder: Path, name: str, **settings: object) -> str:
    """Write the YAML file of an experiment, and return its path."""
    file = folder / f"{name}.yaml"
    usual = {
        "rewards": {"agentfly_core.rewards.exact:exact": 1.0},
        "agent": {"use": f"{HERE}:reader", "remembers": f"{HERE}:remember", **LIMITS},
    }
    file.write_text(json.dumps({**usual, **settings}))  # JSON is YAML
    return str(file)


def remembering(folder: Path, seed: int, book: str) -> str:
    """Write an experiment that learns the digits of a book with its memory.

    Weights do not change.
    """
    data = {"use": f"{HERE}:codes", "train": KEYS, "validation": 0, "test": TEST, "book": book}
    rollout = {"problems": KEYS, "group_size": 16, "shard": 64}
    return experiment(
        folder,
        f"book-{book}-{seed}",
        model=f"run:school-{seed}",
        data=data,
        rollout=rollout,
        update="none",
        steps=3,
        seed=seed,
    )


def school(folder: Path, seed: int) -> str:
    """Write an experiment with only a warm start, which teaches to copy a note or to guess."""
    data = {"use": f"{HERE}:codes", "train": 400, "validation": 0, "test": 8, "hints": True}
    shown = {"demonstrations": f"{HERE}:copies_or_guesses", "episodes": 800, "batch": 16}
    return experiment(
        folder,
        f"school-{seed}",
        model="nano",
        data=data,
        warm_start={**shown, "rounds": 4},
        steps=0,
        seed=seed,
    )


def measured(folder: Path, seed: int) -> Gains:
    """Train a policy, let it remember two books, and evaluate it on the first book."""
    store = str(folder / "store")
    train(load_experiment(school(folder, seed), store=store), f"school-{seed}")
    own, other = (
        load_experiment(remembering(folder, seed, book), store=store) for book in ("a", "b")
    )
    train(own, f"own-{seed}")
    train(other, f"other-{seed}")
    empty, with_own, with_others = (
        evaluate(own, f"run:{policy}").success
        for policy in (f"own-{seed}@0", f"own-{seed}", f"other-{seed}")
    )
    return Gains(empty, with_own, with_others)


def main() -> None:
    """Print the gains of each seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    os.environ.setdefault("AGENTFLY_SAMPLER", "transformers")
    os.environ.setdefault("AGENTFLY_WORKERS", "0")
    for seed in range(arguments.seeds):
        with tempfile.TemporaryDirectory() as folder:
            print(seed, json.dumps(asdict(measured(Path(folder), seed))), flush=True)


if __name__ == "__main__":
    main()
