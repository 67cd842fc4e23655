"""IoU of a nano model's buildings before and after training, and after permuted rewards.

    python -m benchmarks.blueprint_learning [--seeds 1 2 3]

The same command continues interrupted runs (`runs/learning-blueprint-...`). The buildings are those
of the test problems, whose sizes are not in training. The interval is paired by problem.
"""

from collections.abc import Mapping, Sequence

from agentfly_core.experiment.run_layout import RunLayout
from agentfly_core.experiment.run_policies import final_policy
from agentfly_core.runs.summary import Evaluations
from agentfly_core.store.artifact import Pointer
from benchmarks import harness
from benchmarks.learning import CONTROL, row, run_of
from flows.experiments import load_experiment

COLUMNS = ("run", "problems", "before", "after", "after - before", "95 % interval, paired")


def main() -> None:
    """Train the missing runs and print the table."""
    options = harness.parser(__doc__, seeds=[1, 2, 3]).parse_args()
    settings = {f"seed {seed}": [f"seed={seed}"] for seed in options.seeds}
    first = options.seeds[0]
    settings[f"permuted rewards, seed {first}"] = [f"seed={first}", CONTROL]
    rows = [row(name, *trained(overrides, name)) for name, overrides in settings.items()]
    harness.show(COLUMNS, rows)


def trained(overrides: Sequence[str], name: str) -> tuple[Mapping[str, float], Mapping[str, float]]:
    """The IoU of each test problem before and after a run, which is trained if it is missing."""
    run = run_of("blueprint", name)
    harness.trained("blueprint", overrides, run)
    loaded = load_experiment("blueprint", overrides, "local", "")
    start = loaded.store.read_json(RunLayout(run).start)
    policies = loaded.store.artifact(start["uri"]), final_policy(loaded.store, run)
    before, after = (_ious(Evaluations(loaded), policy, loaded.dataset) for policy in policies)
    return before, after


def _ious(stored: Evaluations, policy: Pointer, data: Pointer) -> dict[str, float]:
    episodes, scores = stored.episodes(policy, "test", data)
    return {
        one.problem.id: scored.rewards["building/iou"]
        for one, scored in zip(episodes, scores, strict=True)
        if one.answered is not None
    }


if __name__ == "__main__":
    main()
