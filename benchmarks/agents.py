"""Do the ready-made agents learn, and do they need each of their parts?

    python -m benchmarks.agents [--experiment folding planner-executor] [--seeds 1 2 3]

Prints the table of learning.py for each experiment. For some experiments, the first seed's policy
is then evaluated on the same test problems with an agent or a template that lacks one part
(ablations.py). The same command continues interrupted runs and evaluations.
"""

from collections.abc import Iterator, Mapping

from agentfly_core.reports.compare.seed_intervals import difference
from agentfly_core.runs.summary import Evaluation
from benchmarks import harness, learning

EXPERIMENTS = [
    "react-calculator",
    "code-block",
    "folding",
    "planner-executor",
    "last-digit",
    "debate",
]
ABLATIONS = {
    "debate": {"one round": "agent.rounds=1"},
    "folding": {
        "no folding": "agent.budget=1000000",
        "another ledger's summary": "agent.use=benchmarks.ablations:ForeignSummary",
    },
    "planner-executor": {
        "steps blanked": "agent.use=benchmarks.ablations:BlankSteps",
        "results blanked": "agent.use=benchmarks.ablations:BlankResults",
    },
    "last-digit": {
        "right reasoning given": "template.use=benchmarks.ablations:OwnThought",
        "another problem's given": "template.use=benchmarks.ablations:ForeignThought",
    },
}
TRAINED_WITHOUT = {
    "last-digit": {"without reasoning": "warm_start.settings.reasoning=false"},
}
WIDTH = 110
COLUMNS = ("agent", "problems", "whole", "ablated", "ablated - whole", "95 % interval, paired")


def main() -> None:
    """Run the missing trainings and evaluations, and print the tables."""
    options = harness.parser(__doc__, experiment=EXPERIMENTS, seeds=[1, 2, 3]).parse_args()
    for experiment in options.experiment:
        results = learning.learned(experiment, options.seeds)
        for name, override in TRAINED_WITHOUT.get(experiment, {}).items():
            for seed in options.seeds:
                row = f"{name}, seed {seed}"
                results[row] = harness.trained(
                    experiment, [f"seed={seed}", override], learning.run_of(experiment, row)
                )
        harness.show(learning.COLUMNS, learning.rows(results), experiment, width=WIDTH)
        first = f"seed {options.seeds[0]}"
        ablated = {
            name: harness.evaluated(
                experiment,
                [f"seed={options.seeds[0]}", override],
                learning.run_of(experiment, first),
            )
            for name, override in ABLATIONS.get(experiment, {}).items()
        }
        if ablated:
            harness.show(
                COLUMNS, rows(results[first].after, ablated), f"{experiment}, {first}", width=WIDTH
            )


def rows(whole: Evaluation, ablated: Mapping[str, Evaluation]) -> Iterator[list[str]]:
    """Yield a table row for each agent that lacks a part (`ablated`).

    A row has the success of the same policy with the complete agent and with this agent, and the
    difference, paired by problem.
    """
    for name, without in ablated.items():
        gain = difference([whole.solved], [without.solved])
        low, high = gain.interval
        shares = f"{whole.success:.3f}", f"{without.success:.3f}", f"{gain.value:+.3f}"
        yield [name, str(len(without.solved)), *shares, f"{low:+.3f} to {high:+.3f}"]


if __name__ == "__main__":
    main()
