"""The probe of MeCo recovers a planted direction, and finds nothing where there is nothing."""

from pathlib import Path

import numpy as np
import pytest

from agentfly_core.recipes.meco.probe import (
    Array,
    MetaCogProbe,
    Method,
    StaleProbe,
    auroc,
    bootstrap,
)

WIDTH, COUNT, LAYERS = 16, 400, 3
SEEDS = range(5)


def planted(seed: int, strength: float) -> tuple[Array, Array, Array]:
    """States [n, layers, width], labels, and the direction that is in layer 1."""
    draw = np.random.default_rng(seed)
    direction = draw.normal(size=WIDTH)
    direction /= np.linalg.norm(direction)
    knows = draw.random(COUNT) < 0.5
    states = draw.normal(size=(COUNT, LAYERS, WIDTH))
    states[:, 1] += strength * np.where(knows, 1, -1)[:, None] * direction
    return states, knows, direction


def scores_of(probe: MetaCogProbe, states: Array) -> Array:
    return probe.score(states[:, list(probe.layers)])


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("method", ["pca", "mean_diff", "logreg"])
def test_a_planted_direction_is_recovered(method: Method, seed: int) -> None:
    states, knows, direction = planted(seed, 2.0)
    draw = np.random.default_rng(seed + 100)
    contrasts = draw.normal(size=(COUNT, LAYERS, WIDTH)) / 4
    contrasts[:, 1] -= draw.random((COUNT, 1)) * 2 * direction
    probe = MetaCogProbe.fit(states[:300], knows[:300], "p", method, contrasts=contrasts)
    (found,) = probe.directions
    assert probe.layers == (1,)
    assert found @ direction / np.linalg.norm(found) >= 0.95
    assert auroc(scores_of(probe, states[300:]), knows[300:]) > 0.95


@pytest.mark.parametrize("method", ["pca", "mean_diff", "logreg"])
def test_states_without_a_signal_give_chance(method: Method) -> None:
    values = []
    for seed in SEEDS:
        states, knows, _ = planted(seed, 0.0)
        contrasts = np.random.default_rng(seed + 100).normal(size=states.shape)
        probe = MetaCogProbe.fit(states[:200], knows[:200], "p", method, contrasts=contrasts)
        values.append(auroc(scores_of(probe, states[200:]), knows[200:]))
    assert 0.4 <= np.mean(values) <= 0.6


@pytest.mark.parametrize("seed", SEEDS)
def test_shuffled_labels_give_chance(seed: int) -> None:
    states, knows, _ = planted(seed, 2.0)
    mixed = np.random.default_rng(seed).permutation(knows)
    probe = MetaCogProbe.fit(states[:200], mixed[:200], "p")
    assert 0.35 <= auroc(scores_of(probe, states[200:]), mixed[200:]) <= 0.65


def test_scores_of_the_fit_are_of_probes_that_did_not_see_them() -> None:
    draw = np.random.default_rng(1)
    states, knows = draw.normal(size=(60, 1, 200)), draw.random(60) < 0.5
    probe = MetaCogProbe.fit(states, knows, "p")
    assert probe.held_out is not None
    assert auroc(scores_of(probe, states), knows) == 1.0
    assert auroc(probe.held_out, knows) < 0.75


def test_several_layers_give_their_mean_score() -> None:
    states, knows, _ = planted(1, 1.0)
    both = MetaCogProbe.fit(states, knows, "p", "mean_diff", layers=[1, 2])
    alone = [MetaCogProbe.fit(states, knows, "p", "mean_diff", layers=[one]) for one in (1, 2)]
    expected = (scores_of(alone[0], states) + scores_of(alone[1], states)) / 2
    np.testing.assert_allclose(scores_of(both, states), expected)


def test_auroc_is_the_share_of_ordered_pairs() -> None:
    scores, knows = np.array([3.0, 1.0, 2.0, 2.0]), np.array([True, False, True, False])
    assert auroc(scores, knows) == 3.5 / 4
    low, high = bootstrap(scores, knows)
    assert 0 <= low <= 3.5 / 4 <= high <= 1


@pytest.mark.parametrize("cost_call", [0.0, 0.1, 0.5, 1.0])
def test_a_threshold_has_the_least_cost(cost_call: float) -> None:
    states, knows, _ = planted(1, 0.7)
    probe = MetaCogProbe.fit(states, knows, "p")
    scores = scores_of(probe, states)

    def cost(threshold: float) -> float:
        answered = scores >= threshold
        return float((answered & ~knows).sum() + cost_call * (~answered).sum())

    chosen = probe.calibrate(scores, knows, np.full(COUNT, True), cost_call)
    best = min(map(cost, [*scores, scores.max() + 1]))
    assert chosen.l_yes == chosen.l_no
    assert cost(chosen.l_yes) == pytest.approx(best)


def test_each_threshold_comes_from_its_own_questions() -> None:
    states, knows, _ = planted(1, 2.0)
    probe = MetaCogProbe.fit(states, knows, "p")
    scores = np.array([-2.0, -1.0, 1.0, 2.0, 3.0, 4.0])
    knows = np.array([False, True, False, False, True, True])
    calls = np.array([False, False, True, True, True, True])
    chosen = probe.calibrate(scores, knows, calls)
    assert (chosen.l_no, chosen.l_yes) == (-1.5, 2.5)
    assert [chosen.decide(one) for one in (-2.0, 0.0, 2.5)] == ["call", "own", "answer"]


def test_crossed_thresholds_become_one() -> None:
    states, knows, _ = planted(1, 2.0)
    probe = MetaCogProbe.fit(states, knows, "p")
    scores = np.array([-2.0, -1.0, 1.0, 2.0])
    knows, calls = np.array([False, True, False, True]), np.array([True, True, False, False])
    chosen = probe.calibrate(scores, knows, calls)
    assert chosen.l_yes == chosen.l_no == 1.5


def test_a_stored_probe_is_equal_and_refuses_another_policy(tmp_path: Path) -> None:
    states, knows, _ = planted(2, 1.0)
    probe = MetaCogProbe.fit(states, knows, "a1b2", layers=[1, 2])
    assert probe.held_out is not None
    probe = probe.calibrate(probe.held_out, knows, knows)
    probe.save(tmp_path / "probe.npz")
    stored = MetaCogProbe.load(tmp_path / "probe.npz")
    assert (scores_of(stored, states) == scores_of(probe, states)).all()
    assert stored.facts == probe.facts
    stored.require("a1b2")
    with pytest.raises(StaleProbe, match="policy a1b2, and this one is c3d4"):
        stored.require("c3d4")


def test_too_few_questions_of_a_kind_are_refused() -> None:
    states, knows, _ = planted(3, 1.0)
    with pytest.raises(ValueError, match="knows 9 of 400"):
        MetaCogProbe.fit(states, np.arange(COUNT) < 9, "p")
    with pytest.raises(ValueError, match="needs contrasts"):
        MetaCogProbe.fit(states, knows, "p", "pca")
