"""Make problems from the files of the DVC stage `ramp`: masked texts and questions."""

import json
import random
from collections.abc import Sequence
from pathlib import Path

from agentfly_core import Problem
from agentfly_core.datasets.splitting import sample

_FILES = {"train": "train", "validation": "val", "test": "test"}


def mask_search(
    seed: int,
    train: int,
    validation: int,
    test: int,
    folder: Path,
    formats: Sequence[str] = ("ramp", "qa"),
) -> dict[str, list[Problem]]:
    """Draw problems for each split from the JSON-lines files of a folder.

    `formats` lists the formats to use: "ramp" (texts with masks) and "qa" (questions). For example,
    "ramp" is read from `ramp_train.jsonl`, `ramp_val.jsonl` and `ramp_test.jsonl`. A problem is

        Problem("017-2", "Fill in: Its founder has badge [mask] ...", {"answers":
            ["5738", "4821"], "masks": 2, "source": "017", "kind": "ramp"})

    `masks` is the number of masks. `source` is the id of the page that the text or the question is
    about. Raises ValueError if a file is missing, or if the files of a split have fewer problems
    than requested.
    """
    draw, sizes = random.Random(seed), {"train": train, "validation": validation, "test": test}
    return {
        split: sample(draw, [p for f in formats for p in read(folder, f, split)], size, split)
        for split, size in sizes.items()
    }


def read(folder: Path, kind: str, split: str) -> list[Problem]:
    """Read all problems of a split from the file of one format.

    The format `kind` is "ramp" (texts with masks) or "qa" (questions).
    """
    path = folder / f"{kind}_{_FILES[split]}.jsonl"
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise ValueError(
            f"{path} cannot be read ({error}): build it with `dvc repro data/ramp/dvc.yaml`."
        ) from None
    rows = map(json.loads, lines)
    return [Problem(row.pop("id"), row.pop("prompt"), row) for row in rows]
