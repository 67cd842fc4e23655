"""Do policies learn the ready-made tasks from rewards, and how well each part of them?

    python -m benchmarks.tasks [--experiment office mixture] [--seeds 1 2 3]

Prints the table of learning.py for each experiment, and also for each task of a mixture and for
each dataset of evaluate.datasets. For search, the first seed's policy is also evaluated on pages
with exchanged texts. The same command continues interrupted runs and evaluations.
"""

import hashlib
import json
import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from agentfly_core.config.tasks import TASK
from agentfly_core.runs.summary import Evaluation
from agentfly_core.tools.search import Row, rows
from benchmarks import agents, harness, learning
from benchmarks.harness import Evaluated

EXPERIMENTS = [
    "office",
    "search",
    "text-shop",
    "reasoning-gym",
    "python-tool",
    "terminal",
    "babyai",
    "mixture",
]
CORPUS = "data/raw/encyclopaedia.jsonl"
SHUFFLED = Path(".agentfly/encyclopaedia-shuffled.jsonl")


def main() -> None:
    """Run the missing trainings and evaluations, and print the tables."""
    options = harness.parser(__doc__, experiment=EXPERIMENTS, seeds=[1, 2, 3]).parse_args()
    for experiment in options.experiment:
        results = learning.learned(experiment, options.seeds)
        harness.show(learning.COLUMNS, learning.rows(results), experiment, width=agents.WIDTH)
        parts = {
            f"{run}: {part}": evaluation
            for run, whole in results.items()
            for part, evaluation in parts_of(whole).items()
        }
        if parts:
            title = f"{experiment}, each part"
            harness.show(learning.COLUMNS, learning.rows(parts), title, width=agents.WIDTH)
        if experiment == "search":
            show_shuffled(results, options.seeds[0])


def parts_of(whole: Evaluated) -> dict[str, Evaluated]:
    """Return the evaluations of a run on parts of the test problems, by the name of the part.

    A part is a task of an experiment with several tasks, or a dataset of the setting
    `evaluate.datasets`. The dictionary is empty if the experiment has neither.
    """
    tasks = {
        name: Evaluated(*(of_task(evaluation, name) for evaluation in whole))
        for name in whole.after.by.get(TASK, {})
    }
    datasets = {
        name: Evaluated(whole.before.datasets[name], evaluation)
        for name, evaluation in whole.after.datasets.items()
    }
    return {**tasks, **datasets}


def of_task(evaluation: Evaluation, name: str) -> Evaluation:
    """Return an evaluation of only the problems of one task."""
    of_name = [item for item in evaluation.solved.items() if item[0].startswith(f"{name}/")]
    solved = dict(of_name)
    return replace(evaluation, success=fmean(solved.values()), solved=solved)


def show_shuffled(results: Mapping[str, Evaluated], seed: int) -> None:
    """Evaluate the policy of a seed on pages with exchanged texts, and print the success."""
    name = f"seed {seed}"
    pages = "".join(f"{json.dumps(row)}\n" for row in shuffled(rows(CORPUS)))
    SHUFFLED.write_text(pages)
    version = hashlib.sha256(pages.encode()).hexdigest()[:16]
    search = f"use: agentfly_core.tools.search:Search, corpus: {SHUFFLED}, results: 2"
    tools = f"tools=[{{{search}, sha256: '{version}'}}, agentfly_core.tools.answer:answer]"
    run = learning.run_of("search", name)
    success = harness.evaluated("search", [f"seed={seed}", tools], run)
    ablated = agents.rows(results[name].after, {"each page with another's text": success})
    harness.show(agents.COLUMNS, ablated, f"search, {name}", width=agents.WIDTH)


def shuffled(pages: list[Row]) -> Iterator[Row]:
    """Yield all pages, with the texts of pages of the same kind exchanged.

    The kinds are companies, books and persons.
    """
    draw = random.Random(0)
    for kind in ("A company,", "A book,", r"A \w+, born"):
        of_kind = [page for page in pages if re.match(kind, page["text"])]
        texts = draw.sample([page["text"] for page in of_kind], len(of_kind))
        for page, text in zip(of_kind, texts, strict=True):
            yield {**page, "text": text}


if __name__ == "__main__":
    main()
