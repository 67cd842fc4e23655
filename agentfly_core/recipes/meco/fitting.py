"""The flow `fit_gate`: fit a probe to a policy, and compare it with other predictors."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from agentfly_core import ArtifactKey, Experiment, Trajectory, digest, play, produce
from agentfly_core.recipes.meco.agents import ANSWER, unpacked
from agentfly_core.recipes.meco.probe import Array, MetaCogProbe, Method, auroc, bootstrap

AGENTS = "agentfly_core.recipes.meco.agents"
PredictorRow = dict[str, str | float]


@dataclass(frozen=True, eq=False)
class Readings:
    """Hidden states and replies of a policy for n questions.

    `states` and `contrasts` have the shape [n, layers, width], and all other arrays [n]. `correct`
    is True for questions that the policy answers correctly without tools. `first_token` has the
    probability of the first token of each answer without tools. `calls` is True for questions where
    the policy decides in its first reply to call a tool. `policy` is the digest of the weights. For
    `states`, `contrasts` and `p_yes`, see the class `Reading`.
    """

    states: Array
    contrasts: Array
    correct: Array
    calls: Array
    first_token: Array
    p_yes: Array
    policy: str


def fit_gate(
    experiment: Experiment,
    policy: str = "",
    method: Method = "logreg",
    layers: Sequence[int] | Literal["auto"] = "auto",
    folder: str = "probes",
    cost_call: float = 0.1,
    cost_error: float = 1.0,
    answer: str = ANSWER,
) -> list[PredictorRow]:
    """Fit a probe on the validation problems. Write it to the store and to `folder/DIGEST.npz`.

    The probe predicts whether the policy can answer a question without tools. Returns a row for
    each predictor, with its AUROC on the test problems:

        [{"predictor": "logreg", "layers": "2", "auroc": 0.97, "low": 0.95, "high": 0.99,
          "correct": 0.49, "file": "probes/4f53....npz"}, ...]

    `policy` is written as in the option `--policy` of `agentfly play`. `low` and `high` are the
    bounds of the 95 % interval of the AUROC. `correct` is the share of correct answers without
    tools. `answer` is the message that requests an answer without tools. For `method` and `layers`,
    see `MetaCogProbe.fit`. For `cost_call` and `cost_error`, see `MetaCogProbe.calibrate`. Raises
    ValueError for a missing policy, and for too few correct or too few wrong answers.
    """
    fit, test = (readings(experiment, policy, split, answer) for split in ("validation", "test"))
    fitted = {one: fitted_to(fit, one, layers) for one in get_args(Method)}
    held_out = fitted[method].held_out
    assert held_out is not None
    probe = fitted[method].calibrate(held_out, fit.correct, fit.calls, cost_call, cost_error)
    target = key_of(probe)
    file = Path(folder) / f"{target.key[:16]}.npz"
    file.parent.mkdir(parents=True, exist_ok=True)
    probe.save(file)
    produce(experiment.store, target, partial(saved, probe))
    rows = compared(fitted, test)
    return [{**one, "file": str(file) if one["predictor"] == method else ""} for one in rows]


def compared(probes: Mapping[str, MetaCogProbe], test: Readings) -> list[PredictorRow]:
    """Return one row per predictor, with the predictor's AUROC on the test questions.

    The predictors are the probes, the probability of the answer's first token, and `p_yes` (the
    probability that the policy claims to know the answer for certain).
    """
    scores = {name: one.score(test.states[:, list(one.layers)]) for name, one in probes.items()}
    scores |= {"first_token": test.first_token, "p_yes": test.p_yes}
    share, rows = float(test.correct.mean()), list[PredictorRow]()
    for name, values in scores.items():
        low, high = bootstrap(values, test.correct)
        layers = ", ".join(map(str, probes[name].layers)) if name in probes else ""
        shown: PredictorRow = {"predictor": name, "layers": layers, "correct": share}
        rows.append({**shown, "auroc": auroc(values, test.correct), "low": low, "high": high})
    return rows


def readings(
    experiment: Experiment, policy: str, split: Literal["validation", "test"], answer: str = ANSWER
) -> Readings:
    """Run two agents on all problems of a split, and return the hidden states and replies.

    The agent `Reading` reads the hidden states. The agent `AtRandom` then makes the model answer
    without tools. Both append the message `answer` to the problem's prompt. Problems with a failed
    episode are skipped. Raises ValueError if no problem is left.
    """
    count = getattr(experiment.settings.data, split)
    reader = experiment.with_agent(use=f"{AGENTS}:Reading", answer=answer)
    forced = {"answer": answer, "answers": 1.0, "calls": 0.0}
    answerer = experiment.with_agent(use=f"{AGENTS}:AtRandom", **forced)
    read, direct = (play(one, policy, count, split) for one in (reader, answerer))
    goal, scores = experiment.whole.goal, {one.trajectory_id: one for one in direct.scores}
    answered = {one.problem.id: one for one in direct.episodes if one.turns}
    kept = [one for one in read.episodes if one.answered and one.problem.id in answered]
    if not kept:
        reasons = {one.error for one in (*read.episodes, *direct.episodes) if one.error}
        raise ValueError(f"All episodes of the split {split} failed: {'; '.join(sorted(reasons))}.")
    answers = [answered[one.problem.id] for one in kept]
    texts = [json.loads(one.answered or "") for one in kept]
    return Readings(
        np.stack([unpacked(one["states"]) for one in texts]),
        np.stack([unpacked(one["contrast"]) for one in texts]),
        np.array([scores[one.id].rewards.get(goal, 0.0) >= 0.5 for one in answers]),
        np.array([one["calls"] for one in texts]),
        np.array([first_token(one) for one in answers]),
        np.array([one["p_yes"] for one in texts]),
        texts[0]["policy"],
    )


def first_token(trajectory: Trajectory) -> float:
    """Return the probability with which the first token of the first reply was sampled."""
    return math.exp(trajectory.turns[0].sampled[0].logprobs[0])


def fitted_to(
    fit: Readings, method: Method, layers: Sequence[int] | Literal["auto"] = "auto"
) -> MetaCogProbe:
    """Fit a probe to the hidden states in `fit`.

    The probe predicts whether the policy answers a question correctly without tools. It uses the
    given `layers`. With "auto", it uses the layer that predicts best.
    """
    return MetaCogProbe.fit(fit.states, fit.correct, fit.policy, method, layers, fit.contrasts)


def key_of(probe: MetaCogProbe) -> ArtifactKey:
    """Return the key of a probe in the store. It contains a digest of the probe's content."""
    name = digest([probe.facts, probe.directions.tolist(), probe.offsets.tolist()])
    return ArtifactKey(f"artifacts/probes/{name[:16]}", "probe", name, {})


def saved(probe: MetaCogProbe, folder: Path) -> Mapping[str, float]:
    """Write a probe to the folder of its artifact.

    Returns an empty mapping, because the artifact is stored without metrics.
    """
    probe.save(folder / "probe.npz")
    return {}
