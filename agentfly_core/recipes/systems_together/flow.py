"""The flow `systems_together`: rounds of a gate and a step of training, and a comparison."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pkgutil import resolve_name
from statistics import fmean
from typing import Any

from agentfly_core import Experiment, load_experiment, play, train

DATA = "data/firms/dvc.yaml"
ROUND = ("warm_start=null", "steps=1", "data.test=1")
"""The policies are compared below, so the run plays one held-out problem only."""
OWN_CHOICE = ("agent.answers=0", "agent.calls=0")
GATED = "agentfly_core.recipes.systems_together.agents:GatedWhileFitting"
PROGRAM = (
    "agent.use=program",
    f"agent.command=[{sys.executable}, agentfly_core/recipes/systems_together/program.py]",
    "agent.preload=[openai, bm25s, agentfly_core.tools.search]",
    "agent.facts=[source]",
)
PLAYED = ("data.train=1", "data.validation=0", "rollout.problems=1", "warm_start=null")
"""Other experiments are only played, so they need no training problems."""
ComparisonRow = dict[str, str | float]


def systems_together(
    experiment: Experiment,
    rounds: int = 2,
    fills: int = 96,
    plans: int = 24,
    competitions: int = 8,
    overrides: Sequence[str] = (),
) -> list[ComparisonRow]:
    """Build the data, train a start, then in each round train a step with a gate of its own.

    A gate belongs to one policy, so a round has one step. Returns a row for the start and for the
    policy of each round, with means over `fills`, `plans` and `competitions` held-out problems:

        [{"policy": "systems-together-0", "fills": 0.71, "searches": 1.0, "gated fills": 0.83, ...,
          "program fills": 0.7, ..., "plans": 0.0, "competitions": 0.0}, ...]

    `overrides` are those of `agentfly train`; name, site and store are those of `experiment`. The
    same call continues.
    """
    subprocess.run([sys.executable, "-m", "dvc", "repro", DATA], check=True, stdout=sys.stderr)
    load = partial(load_experiment, site=experiment.site.name, store=experiment.store.uri)
    own = partial(load, experiment.name, *overrides)
    planning = load("tptu", *PLAYED, f"data.test={plans}")
    competing = load("mle", *PLAYED, f"data.test={competitions}")
    rows, changes = list[ComparisonRow](), ["steps=0"]
    for number in range(rounds + 1):
        run = f"{experiment.name}-{number}"
        train(own(*changes), run)
        gate = fitted(own(), run)
        agents = {"": own(*OWN_CHOICE), "gated ": own(*gate), "program ": own(*PROGRAM)}
        row: ComparisonRow = {"policy": run, **filled(agents, run, fills)}
        row["plans"] = planned(planning, run)
        row["competitions"] = ranked(competing, run)
        rows.append(row)
        changes = [f"model=run:{run}", *ROUND, *gate]
    return rows


def fitted(experiment: Experiment, run: str) -> list[str]:
    """The overrides for an agent with a gate, which the flow `fit_gate` fits to a run."""
    rows = _flow(experiment, "fit_gate", policy=f"run:{run}")
    return [f"agent.use={GATED}", *(f"agent.probe={row['file']}" for row in rows if row["file"])]


def filled(agents: Mapping[str, Experiment], run: str, problems: int) -> ComparisonRow:
    """The share of filled masks and the mean number of searches of each agent."""
    row = ComparisonRow()
    for name, agent in agents.items():
        played = play(agent, f"run:{run}", problems, "test")
        row[f"{name}fills"] = fmean(one.rewards.get("fills") == 1 for one in played.scores)
        row[f"{name}searches"] = fmean(len(one.observations) for one in played.episodes)
    return row


def planned(experiment: Experiment, run: str) -> float:
    """The share of right plans, by the flow `evaluate_plans`."""
    count = experiment.settings.data.test
    rows = _flow(experiment, "evaluate_plans", policies=[f"run:{run}"], episodes=count)
    return float(rows[0]["planning"])


def ranked(experiment: Experiment, run: str) -> float:
    """The mean HumanRank of competitions."""
    played = play(experiment, f"run:{run}", experiment.settings.data.test, "test")
    return fmean(one.rewards.get("human_rank", 0.0) for one in played.scores)


def _flow(experiment: Experiment, name: str, **settings: Any) -> list[ComparisonRow]:
    """The rows of one of the experiment's flows."""
    part = experiment.settings.flows[name]
    rows: list[ComparisonRow] = resolve_name(part.use)(experiment, **part.settings | settings)
    return rows
