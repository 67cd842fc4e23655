"""Does a nano model learn to choose pipelines for competitions that it has not seen?

    python -m benchmarks.mle [--seeds 1 2 3]

Each run is an ordinary one (`runs/mle-...`): the same command continues it after an interruption.
The table has the mean HumanRank on test problems before and after training, and the paired 95 %
interval of the difference; the control has permuted rewards.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean

from agentfly_core.experiment.run_layout import RunLayout
from agentfly_core.experiment.run_policies import final_policy
from agentfly_core.records.trajectory import Unscored
from agentfly_core.runs.summary import Evaluations
from benchmarks import harness
from benchmarks.learning import COLUMNS, CONTROL, row
from flows.experiments import load_experiment


def main() -> None:
    """Train the runs that are missing and print the table."""
    seeds = harness.parser(__doc__, seeds=[1, 2, 3]).parse_args().seeds
    runs = {f"seed {seed}": [f"seed={seed}"] for seed in seeds}
    runs[f"permuted rewards, seed {seeds[0]}"] = [f"seed={seeds[0]}", CONTROL]
    results = {name: ranks(overrides) for name, overrides in runs.items()}
    harness.show(COLUMNS, [row(name, *result) for name, result in results.items()])


def ranks(overrides: Sequence[str]) -> list[Mapping[str, float]]:
    """The mean reward of each test problem before and after a run."""
    run = "mle-" + "-".join(text.rpartition("=")[2].rpartition(":")[2] for text in overrides)
    harness.trained("mle", overrides, run)
    loaded = load_experiment("mle", overrides, "local", "")
    store = loaded.store
    first = store.artifact(store.read_json(RunLayout(run).start)["uri"])
    results: list[Mapping[str, float]] = []
    for policy in (first, final_policy(store, run)):
        played, scores = Evaluations(loaded).episodes(policy, "test", loaded.dataset)
        rewards, earned = {one.trajectory_id: one.reward for one in scores}, defaultdict(list)
        for trajectory in played:
            if not isinstance(reward := rewards[trajectory.id], Unscored):
                earned[trajectory.problem.id].append(reward)
        results.append({problem: fmean(each) for problem, each in earned.items()})
    return results


if __name__ == "__main__":
    main()
