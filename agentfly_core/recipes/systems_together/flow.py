"""The flow `systems_together`: train policies, fit gates (tool or no tool), compare policies."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from pkgutil import resolve_name
from statistics import fmean

from agentfly_core import Experiment, Unscored, load_experiment, play, train

DATA = "data/firms"
GATE = "agentfly_core.recipes.meco.agents:Gated"
PROGRAM = {
    "use": "program",
    "command": [sys.executable, f"{Path(__file__).with_name('program.py')}", f"{DATA}/pages.jsonl"],
    "preload": ["openai"],
    "facts": ["source"],
}
ComparisonRow = dict[str, str | float]


def systems_together(
    experiment: Experiment, rounds: int = 2, plans: int = 24, competitions: int = 4
) -> list[ComparisonRow]:
    """Build the data, train a first policy, run several rounds, and compare the policies.

    Each policy gets a gate, which decides whether a question needs a tool. A round first trains the
    newest policy for one step, on episodes in which this policy uses its gate. Then a gate is
    fitted to the new policy. A round has only one step, because a gate fits only one policy.
    Returns a row for the oracle (the scripted policy of the demonstrations), for the first policy,
    and for the policy of each round:

        [{"policy": "run:systems-together-1f2e3d4c", "own": 0.71, "own calls": 1.0, "program": 0.71,
          ..., "plans": 0.0, "competitions": 0.0, "competitions calls": 0.0, "gated": 0.83, ...}]

    Each policy is evaluated on test problems in five ways. An entry such as `own` is the mean of
    the goal, which is the reward that decides whether an episode is solved. An entry such as
    `own calls` is the mean number of tool results per episode. The evaluations are:

    - `own`: the agent without a gate
    - `program`: the agent as a program that uses OpenAI's API
    - `plans`: the experiment `tptu`, with `plans` test problems
    - `competitions`: the experiment `mle`, with `competitions` test problems
    - `gated`: the agent with the gate of the policy. The row of the oracle lacks this evaluation,
      because a gate needs hidden states.

    After an interruption, the same call continues the work.
    """
    subprocess.run([sys.executable, "-m", "dvc", "repro", f"{DATA}/dvc.yaml"], check=True)
    start = train(experiment)["run"]
    policies, gated = [f"run:{start}"], [with_gate(experiment, f"run:{start}")]
    for _ in range(rounds):
        step = {"model": policies[-1], "warm_start": None, "steps": 1}
        policies.append(f"run:{train(gated[-1].changed(**step))['run']}")
        gated.append(with_gate(experiment, policies[-1]))
    place = {"site": experiment.site.name, "store": experiment.store.uri}
    # with the start as model, the oracle needs no new nano model for the tokens of each agent
    started = experiment.changed(model=policies[0])
    evaluations = {
        "own": started.with_agent(use="agentfly_core.agents.tool_loop:tool_loop"),
        "program": started.with_agent(**PROGRAM),
        "plans": held_out("tptu", plans, policies[0], place),
        "competitions": held_out("mle", competitions, policies[0], place),
    }
    pairs = zip(policies, gated, strict=True)
    compared = [scored(policy, {**evaluations, "gated": gate}) for policy, gate in pairs]
    return [scored("oracle", evaluations), *compared]


def with_gate(experiment: Experiment, policy: str) -> Experiment:
    """Fit a gate to a policy with the flow `fit_gate`. Return the experiment with this gate.

    A gate decides whether a question needs a tool.
    """
    flow = experiment.settings.flows["fit_gate"]
    rows = resolve_name(flow.use)(experiment, **flow.settings | {"policy": policy})
    (probe,) = [row["file"] for row in rows if row["file"]]
    return experiment.with_agent(use=GATE, probe=probe, stale="own")


def held_out(name: str, problems: int, start: str, place: Mapping[str, str]) -> Experiment:
    """Load the experiment `name`, to evaluate policies on its test problems.

    `problems` is the number of test problems, and `start` becomes the model of the experiment.
    The token limits are higher than in the experiment's own settings, because the tokenizer of
    `start` needs more tokens for these problems. `place` contains two keyword arguments of
    `load_experiment`: `site` and `store`.
    """
    data = (f"data.test={problems}", "data.train=1", "data.validation=0")
    limits = ("agent.max_tokens=512", "agent.max_model_len=1024", "steps=0")
    return load_experiment(name, f"model={start}", *data, *limits, **place)


def scored(policy: str, evaluations: Mapping[str, Experiment]) -> ComparisonRow:
    """Evaluate a policy in each experiment of `evaluations`. Return the policy's row of results.

    Raises ValueError if an episode has no score.
    """
    row: ComparisonRow = {"policy": policy}
    for name, one in evaluations.items():
        played = play(one, policy, one.settings.data.test, "test")
        lost = [score.reward for score in played.scores if isinstance(score.reward, Unscored)]
        if lost:
            raise ValueError(
                f"Episodes of {policy} in {name} without a score: {len(lost)}. The first reason: "
                f"{lost[0].reason}"
            )
        # an unreadable answer has the reward -1, which counts as 0 here
        row[name] = fmean(max(0.0, score.rewards[one.whole.goal]) for score in played.scores)
        row[f"{name} calls"] = fmean(len(episode.observations) for episode in played.episodes)
    return row
