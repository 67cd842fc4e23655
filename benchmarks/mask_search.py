"""Does filling masks first help a policy with few labelled questions?

    python -m benchmarks.mask_search --seeds 1 2 3

From one warm start of each seed: masks, then questions; as many steps on questions alone; and the
first again where pages state other facts during the masks. All are ordinary runs: the same command
continues them. Held-out questions are paired by problem, seeds by their warm start.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev

from agentfly_core.recipes.mask_search.corpus import encyclopaedia
from agentfly_core.recipes.mask_search.ramp import write
from agentfly_core.records.intervals import student
from benchmarks import harness, learning
from benchmarks.harness import Evaluated

EXPERIMENT = "mask-search"
OTHER_FACTS = Path(".agentfly/mask-search-other")
QUESTIONS = ("data.formats=[qa]", "data.train=72", "rollout.curriculum=null")
MASKS = ("data.formats=[ramp]", "data.test=48")
ARMS = ("masks, then questions", "questions alone", "other facts, then questions")


def main() -> None:
    """Train what is missing and print the tables."""
    parser = harness.parser(__doc__, seeds=[1, 2, 3], pretrain=20, steps=10)
    options = parser.parse_args()
    results = {seed: compared(seed, options.pretrain, options.steps) for seed in options.seeds}
    rows = [
        [f"seed {seed}", *row]
        for seed, arms in results.items()
        for row in learning.rows(dict(zip(ARMS, arms, strict=True)))
    ]
    harness.show(("seed", *learning.COLUMNS), rows)
    after = [[fmean(arm.after.solved.values()) for arm in arms] for arms in results.values()]
    for arm, name in ((0, ARMS[0]), (2, ARMS[2])):
        print(f"{name}, against {ARMS[1]}: {gain([seed[arm] - seed[1] for seed in after])}")


def compared(seed: int, pretrain: int, steps: int) -> list[Evaluated]:
    """The evaluations of the three arms of a seed on questions."""
    start = f"mask-search-start-{seed}"
    harness.trained(EXPERIMENT, [f"seed={seed}", "steps=0"], start)
    masks = trained(seed, start, "masks", pretrain, MASKS)
    other = trained(seed, start, "other-masks", pretrain, [*MASKS, other_facts(seed)])
    arms = [("qa", masks, steps), ("qa-alone", start, pretrain + steps), ("other-qa", other, steps)]
    names = [trained(seed, model, arm, count, QUESTIONS) for arm, model, count in arms]
    first = harness.trained(
        EXPERIMENT, settings(seed, start, pretrain + steps, QUESTIONS), names[1]
    )
    return [
        Evaluated(
            first.before,
            harness.trained(EXPERIMENT, settings(seed, model, count, QUESTIONS), name).after,
        )
        for name, (_, model, count) in zip(names, arms, strict=True)
    ]


def settings(seed: int, model: str, steps: int, others: Sequence[str]) -> list[str]:
    """Overrides of a run from another run's policy."""
    return [f"seed={seed}", f"model=run:{model}", "warm_start=null", f"steps={steps}", *others]


def trained(seed: int, model: str, arm: str, steps: int, others: Sequence[str]) -> str:
    """Train a run of an arm, or read it, and return its name."""
    name = f"mask-search-{arm}-{seed}"
    harness.trained(EXPERIMENT, settings(seed, model, steps, others), name)
    return name


def other_facts(seed: int) -> str:
    """Write pages with the facts of another seed; returns the override that searches them."""
    folder = OTHER_FACTS / str(seed)
    write(folder, encyclopaedia(1000 + seed), {})
    file = folder / "pages.jsonl"
    version = hashlib.sha256(file.read_bytes()).hexdigest()
    search = f"use: agentfly_core.tools.search:Search, corpus: {file}, sha256: '{version}'"
    return f"tools=[{{{search}, results: 1, hides: source}}, agentfly_core.tools.answer:answer]"


def gain(differences: Sequence[float]) -> str:
    """The mean over seeds with its t-interval."""
    mean = fmean(differences)
    if len(differences) == 1:
        return f"{mean:+.3f} (one seed)"
    half = student(len(differences) - 1) * stdev(differences) / len(differences) ** 0.5
    return f"{mean:+.3f}, {mean - half:+.3f} to {mean + half:+.3f} by seed"


if __name__ == "__main__":
    main()
