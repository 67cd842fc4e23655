"""A linear probe that predicts from hidden states whether a model can answer without tools."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Method = Literal["pca", "mean_diff", "logreg"]
GateDecision = Literal["answer", "call", "own"]
RIDGE = 10.0
"""The strength of the L2 penalty of the method `logreg`, for standardised hidden states."""
FOLDS = 5


@dataclass(frozen=True, eq=False)
class MetaCogProbe:
    """A linear probe of hidden states. High scores predict a correct answer without tools.

    Each of the probe's `layers` has a direction in `directions` [layers, width], and an offset in
    `offsets` [layers]. The score of a layer is the dot product of the layer's hidden state and
    direction, plus the layer's offset. The score of the probe is the mean score of its layers. For
    a score of at least `l_yes`, the decision is to answer without a tool. For a score below `l_no`,
    the decision is to call a tool. Otherwise the model decides. `policy` is the digest of the
    policy's weights, as in `HiddenStates`. `held_out` [n] has the cross-validated scores of the n
    questions to which the probe was fitted.
    """

    layers: tuple[int, ...]
    directions: Array
    offsets: Array
    policy: str
    l_yes: float = 0.0
    l_no: float = 0.0
    held_out: Array | None = None

    @classmethod
    def fit(
        cls,
        states: Array,
        correct: Array,
        policy: str,
        method: Method = "logreg",
        layers: Sequence[int] | Literal["auto"] = "auto",
        contrasts: Array | None = None,
        seed: int = 0,
    ) -> MetaCogProbe:
        """Fit a probe that predicts `correct` [n] from the hidden states `states`.

        `states` [n, layers, width] has all layers of the policy. `correct` is True for the
        questions that the policy answers correctly without tools.
        `policy` is the digest of the policy's weights. The method determines the direction and the
        offset of each layer of the probe (see MetaCogProbe). The methods are:

        - `logreg`: a logistic regression
        - `mean_diff`: the direction is the mean state of correct answers minus the mean state of
          wrong answers.
        - `pca`: the direction is the first principal component of `contrasts` [m, layers, width],
          the differences between the states after two opposite instructions. Only the
          offset and the sign of the direction depend on `correct`.

        `layers` are the layers of the probe. With "auto", the probe uses only the layer with the
        best AUROC in a cross-validation. If several layers are equally good, it uses the last of
        them. `seed` determines how the questions are divided into FOLDS folds. Raises ValueError
        for `pca` without `contrasts`. Also raises ValueError for fewer than 10 correct or fewer
        than 10 wrong answers.
        """
        correct = np.asarray(correct, bool)
        if min(correct.sum(), (~correct).sum()) < 2 * FOLDS:
            raise ValueError(
                f"{correct.sum()} of {len(correct)} answers without tools are correct. A probe "
                f"needs at least {2 * FOLDS} correct and {2 * FOLDS} wrong answers. Raise "
                "data.validation."
            )
        if method == "pca" and contrasts is None:
            raise ValueError(
                "The method pca needs `contrasts`, which are differences of hidden states, but "
                "contrasts is None. Pass these differences."
            )
        every = range(states.shape[1]) if layers == "auto" else layers
        numbers = {layer: _Layer.of(layer, states, contrasts, method) for layer in every}
        parts = _parts(correct, seed)
        scores = {layer: one.held_out(correct, parts) for layer, one in numbers.items()}
        best = max(every, key=lambda layer: (auroc(scores[layer], correct), layer))
        chosen = (best,) if layers == "auto" else tuple(layers)
        fitted = [numbers[layer].fitted(correct, np.full(len(correct), True)) for layer in chosen]
        directions, offsets = (np.stack(each) for each in zip(*fitted, strict=True))
        held_out = np.mean([scores[layer] for layer in chosen], axis=0)
        return cls(chosen, directions, offsets, policy, held_out=held_out)

    def score(self, values: Array) -> Array:
        """Return the scores of hidden states [..., layers, width]. The result's shape is [...].

        `values` has the hidden states of the probe's layers only.
        """
        scores: Array = ((values * self.directions).sum(-1) + self.offsets).mean(-1)
        return scores

    def decide(self, score: float) -> GateDecision:
        """Return "answer" (at once), "call" (a tool) or "own" for a score of the probe.

        "own" leaves this choice to the model.
        """
        if score >= self.l_yes:
            return "answer"
        return "call" if score < self.l_no else "own"

    def calibrate(
        self,
        scores: Array,
        correct: Array,
        calls: Array,
        cost_call: float = 0.1,
        cost_error: float = 1.0,
    ) -> MetaCogProbe:
        """Return a copy of the probe with new thresholds `l_yes` and `l_no`.

        The thresholds are chosen for the lowest cost on n questions. `scores` [n] are the probe's
        scores, and `correct` [n] is True for questions that are answered correctly without tools.
        `calls` [n] is True for questions where the model's own first reply calls a tool. A wrong
        answer costs `cost_error`, and a call costs `cost_call`. `l_yes` is chosen on the questions
        with `calls`, and `l_no` on all other questions. If one of the two groups is empty, or if
        `l_no` would be above `l_yes`, both thresholds get one value, chosen on all questions.
        """

        def threshold(chosen: Array) -> float:
            return _threshold(scores[chosen], correct[chosen], cost_call / cost_error)

        if calls.any() and not calls.all():
            l_yes, l_no = threshold(calls), threshold(~calls)
            if l_no <= l_yes:
                return replace(self, l_yes=l_yes, l_no=l_no)
        both = threshold(np.full(len(scores), True))
        return replace(self, l_yes=both, l_no=both)

    def require(self, policy: str) -> None:
        """Raise ValueError if the probe was fitted to a policy with a different digest."""
        if policy != self.policy:
            raise ValueError(
                f"The probe was fitted to the policy {self.policy[:16]}, but this policy is "
                f"{policy[:16]}. Fit a new probe with the flow fit_gate."
            )

    @property
    def facts(self) -> str:
        """The probe's layers, policy and thresholds as JSON text."""
        facts = {"layers": self.layers, "policy": self.policy}
        return json.dumps({**facts, "l_yes": self.l_yes, "l_no": self.l_no})

    def save(self, file: Path) -> None:
        """Write the probe to an .npz file, without the scores `held_out`."""
        facts = np.array(self.facts)
        np.savez(file, directions=self.directions, offsets=self.offsets, facts=facts)

    @classmethod
    def load(cls, file: Path) -> MetaCogProbe:
        """Read a probe from a file that `save` wrote.

        Raises FileNotFoundError if the file does not exist.
        """
        with np.load(file, allow_pickle=False) as arrays:
            facts = json.loads(str(arrays["facts"]))
            layers = tuple(facts.pop("layers"))
            return cls(layers, arrays["directions"], arrays["offsets"], **facts)


def auroc(scores: Array, correct: Array) -> float:
    """Return the area under the ROC curve: how well scores separate correct from wrong answers.

    All pairs of a correct and a wrong answer are compared. The result is the share of pairs in
    which the correct answer has the higher score. Pairs with equal scores count as half.
    """
    correct = np.asarray(correct, bool)
    above = scores[correct][:, None] - scores[~correct][None]
    return float(((above > 0) + 0.5 * (above == 0)).mean()) if above.size else 0.5


def bootstrap(
    scores: Array, correct: Array, seed: int = 0, draws: int = 1000
) -> tuple[float, float]:
    """Return the lower and the upper bound of the 95 % interval of `auroc(scores, correct)`.

    The interval is computed from `draws` bootstrap samples of the questions.
    """
    rows = np.random.default_rng(seed).integers(len(correct), size=(draws, len(correct)))
    low, high = np.quantile([auroc(scores[row], correct[row]) for row in rows], [0.025, 0.975])
    return float(low), float(high)


@dataclass(frozen=True, eq=False)
class _Layer:
    """The data for fitting a probe of one layer: hidden states [n, width] and the fitting method.

    For the method `pca`, `component` [width] is the first principal component of the contrasts
    (differences between the hidden states after two opposite instructions).
    """

    states: Array
    method: Method
    component: Array

    @classmethod
    def of(cls, layer: int, states: Array, contrasts: Array | None, method: Method) -> _Layer:
        component = np.zeros(0)
        if method == "pca" and contrasts is not None:
            rows = contrasts[:, layer].astype(np.float64)
            component = np.linalg.svd(rows, full_matrices=False)[2][0]
        return cls(states[:, layer].astype(np.float64), method, component)

    def held_out(self, correct: Array, parts: Array) -> Array:
        """Return the cross-validated score of each question.

        `parts` has the number of each question's fold. To compute the scores of a fold, a direction
        and an offset are fitted to the questions of all other folds.
        """
        scores = np.zeros(len(correct))
        for part in range(FOLDS):
            direction, offset = self.fitted(correct, parts != part)
            scores[parts == part] = self.states[parts == part] @ direction + offset
        return scores

    def fitted(self, correct: Array, rows: Array) -> tuple[Array, float]:
        """Fit the direction [width] and the offset of this layer's score.

        Only the questions that the mask `rows` [n] selects are used.
        """
        states, correct = self.states[rows], correct[rows]
        if self.method == "logreg":
            return _logistic(states, correct)
        means = states[correct].mean(0), states[~correct].mean(0)
        direction = means[0] - means[1]
        if self.method == "pca":
            # the sign of a component is arbitrary
            turned = auroc(states @ self.component, correct) < 0.5
            direction = -self.component if turned else self.component
        # all embeddings of the last token are equal, so the direction of layer 0 is 0
        direction = direction / (np.linalg.norm(direction) or 1.0)
        return direction, -float((means[0] + means[1]) @ direction / 2)


def _parts(correct: Array, seed: int) -> Array:
    """Return the number of each question's fold. Folds are stratified by `correct`."""
    order = np.random.default_rng(seed).permutation(len(correct))
    order = order[np.argsort(correct[order], kind="stable")]
    parts = np.zeros(len(correct), int)
    parts[order] = np.arange(len(correct)) % FOLDS
    return parts


def _logistic(states: Array, correct: Array) -> tuple[Array, float]:
    """Fit a logistic regression with an L2 penalty, and return its direction and offset."""
    centre, spread = states.mean(0), states.std(0) + 1e-6
    # solve in the span of the rows, which has fewer dimensions than `width` for few questions
    left, sizes, basis = np.linalg.svd((states - centre) / spread, full_matrices=False)
    rows = np.column_stack([left * sizes, np.ones(len(states))])
    penalty = np.full(rows.shape[1], RIDGE)
    penalty[-1] = 1e-6  # the offset has almost no penalty
    weights = np.zeros(rows.shape[1])
    for _ in range(15):
        chance = 1 / (1 + np.exp(-np.clip(rows @ weights, -30, 30)))
        slope = rows.T @ (chance - correct) + penalty * weights
        curve = (rows * (chance * (1 - chance))[:, None]).T @ rows + np.diag(penalty)
        weights -= np.linalg.solve(curve, slope)
    direction: Array = (weights[:-1] @ basis) / spread
    return direction, float(weights[-1] - centre @ direction)


def _threshold(scores: Array, correct: Array, cost_call: float) -> float:
    """Return the threshold with the lowest total cost.

    A question with a score of at least the threshold is answered at once, and costs 1 if the answer
    is wrong. Each other question calls a tool, and costs `cost_call`. Of several thresholds with
    the lowest cost, the highest is returned.
    """
    ordered = np.sort(scores)
    cuts = np.concatenate([[ordered[0] - 1], (ordered[1:] + ordered[:-1]) / 2, [ordered[-1] + 1]])
    answered = scores[None] >= cuts[:, None]
    costs = (answered & ~correct[None]).sum(1) + (~answered).sum(1) * cost_call
    return float(cuts[np.flatnonzero(costs == costs.min())[-1]])
