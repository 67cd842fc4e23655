"""Does filling masks first help a policy with four labelled questions?

    python -m benchmarks.mask_search --seeds 4 5 6 10 11

Three arms start from one warm start. The first trains on masks, then on questions. The second
trains for as many steps on questions alone. The third is the first, but with pages of other facts
during the masks. The same command continues interrupted runs. Held-out questions are paired by
problem.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from agentfly_core.recipes.mask_search.corpus import encyclopaedia
from agentfly_core.recipes.mask_search.ramp import write
from agentfly_core.reports.compare.seed_intervals import difference
from agentfly_core.runs.summary import Evaluation
from benchmarks import harness, learning, score_learning
from benchmarks.harness import Evaluated

EXPERIMENT = "mask-search"
OTHER_FACTS = Path(".agentfly/mask-search-other")
# a step has 128 episodes, like a step on masks
QUESTIONS = (
    "data.formats=[qa]",
    "data.train=4",
    "rollout.problems=4",
    "rollout.group_size=32",
    "rollout.curriculum=null",
)
MASKS = ("data.formats=[ramp]", "data.train=2400", "data.test=48")
# warm starts of other seeds solve 0 to 26 % of the questions; this one solves about 5 %
START_SEED = 7
ARMS = ("masks, then questions", "questions alone", "other facts, then questions")


def main() -> None:
    """Train the missing runs and print the tables."""
    parser = harness.parser(__doc__, seeds=[4, 5, 6, 10, 11], pretrain=32, steps=8)
    options = parser.parse_args()
    results = {seed: compared(seed, options.pretrain, options.steps) for seed in options.seeds}
    rows = [
        [f"seed {seed}", *row]
        for seed, arms in results.items()
        for row in learning.rows(dict(zip(ARMS, arms, strict=True)))
    ]
    harness.show(("seed", *learning.COLUMNS), rows)
    after = [[arm.after for arm in arms] for arms in zip(*results.values(), strict=True)]
    for arm in (0, 2):
        print(f"{ARMS[arm]}, against {ARMS[1]}: {gain(after[1], after[arm])}")


def compared(seed: int, pretrain: int, steps: int) -> list[Evaluated]:
    """Train the three arms of a seed. Return their success on questions before and after training.

    All arms have the same number of episodes per step.
    """
    start = "mask-search-start"
    harness.trained(EXPERIMENT, [f"seed={START_SEED}", "steps=0"], start)
    masks, other = f"mask-search-masks-{seed}", f"mask-search-other-masks-{seed}"
    for run, others in ((masks, MASKS), (other, [*MASKS, other_facts(seed)])):
        harness.trained(EXPERIMENT, settings(seed, start, pretrain, others), run)
    arms = [("qa", masks, steps), ("qa-alone", start, pretrain + steps), ("other-qa", other, steps)]
    results = [
        harness.trained(
            EXPERIMENT, settings(seed, model, count, QUESTIONS), f"mask-search-{arm}-{seed}"
        )
        for arm, model, count in arms
    ]
    return [each._replace(before=results[1].before) for each in results]


def settings(seed: int, model: str, steps: int, others: Sequence[str]) -> list[str]:
    """Return the overrides of a run that starts from the policy of the run `model`."""
    return [f"seed={seed}", f"model=run:{model}", "warm_start=null", f"steps={steps}", *others]


def other_facts(seed: int) -> str:
    """Write a corpus in which the pages have wrong facts. Return the override that searches it.

    The facts are generated from a different seed.
    """
    folder = OTHER_FACTS / str(seed)
    texts = {page["title"]: page["text"] for page in encyclopaedia(1000 + seed)}
    # the ids are the same as in the right corpus, because the search hides pages by id
    write(folder, [{**page, "text": texts[page["title"]]} for page in encyclopaedia(0)], {})
    file = folder / "pages.jsonl"
    version = hashlib.sha256(file.read_bytes()).hexdigest()
    search = f"use: agentfly_core.tools.search:Search, corpus: {file}, sha256: '{version}'"
    return f"tools=[{{{search}, results: 1, hides: source}}, agentfly_core.tools.answer:answer]"


def gain(alone: Sequence[Evaluation], after: Sequence[Evaluation]) -> str:
    """Format the mean gain of one arm over another arm.

    The text also has a t-interval over seeds, and an interval over problems.
    """
    seeds = [two.success - one.success for one, two in zip(alone, after, strict=True)]
    low, high = difference([learning.pooled(alone)], [learning.pooled(after)]).interval
    return f"{score_learning.by_seed(seeds)}, {low:+.3f} to {high:+.3f} by problem"


if __name__ == "__main__":
    main()
