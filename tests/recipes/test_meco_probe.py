"""The probe of MeCo recovers a planted direction, and finds nothing where there is nothing."""

from pathlib import Path

import numpy as np
import pytest

from agentfly_core.recipes.meco.probe import (
    Array,
    MetaCogProbe,
    Method,
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
    correct = draw.random(COUNT) < 0.5
    states = draw.normal(size=(COUNT, LAYERS, WIDTH))
    states[:, 1] += strength * np.where(correct, 1, -1)[:, None] * direction
    return states, correct, direction


def scores_of(probe: MetaCogProbe, states: Array) -> Array:
    return probe.score(states[:, list(probe.layers)])


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("method", ["pca", "mean_diff", "logreg"])
def test_a_planted_direction_is_recovered(method: Method, seed: int) -> None:
    states, correct, direction = planted(seed, 2.0)
    draw = np.random.default_rng(seed + 100)
    contrasts = draw.normal(size=(COUNT, LAYERS, WIDTH)) / 4
    contrasts[:, 1] -= draw.random((COUNT, 1)) * 2 * direction
    probe = MetaCogProbe.fit(states[:300], correct[:300], "p", method, contrasts=contrasts)
    (direct,) = probe.directions
    assert probe.layers == (1,)
    assert direct @ direction / np.linalg.norm(direct) >= 0.95
    assert auroc(scores_of(probe, states[300:]), correct[300:]) > 0.95


@pytest.mark.parametrize("method", ["pca", "mean_diff", "logreg"])
def test_states_without_a_signal_give_chance(method: Method) -> None:
    values = []
    for seed in SEEDS:
        states, correct, _ = planted(seed, 0.0)
        contrasts = np.random.default_rng(seed + 100).normal(size=states.shape)
        probe = MetaCogProbe.fit(states[:200], correct[:200], "p", method, contrasts=contrasts)
        values.append(auroc(scores_of(probe, states[200:]), correct[200:]))
    assert 0.4 <= np.mean(values) <= 0.6


@pytest.mark.parametrize("seed", SEEDS)
def test_shuffled_labels_give_chance(seed: int) -> None:
    states, correct, _ = planted(seed, 2.0)
    mixed = np.random.default_rng(seed).permutation(correct)
    probe = MetaCogProbe.fit(states[:200], mixed[:200], "p")
    assert 0.35 <= auroc(scores_of(probe, states[200:]), mixed[200:]) <= 0.65


def test_scores_of_the_fit_are_of_probes_that_did_not_see_them() -> None:
    draw = np.random.default_rng(1)
    states, correct = draw.normal(size=(60, 1, 200)), draw.random(60) < 0.5
    probe = MetaCogProbe.fit(states, correct, "p")
    assert probe.held_out is not None
    assert auroc(scores_of(probe, states), correct) == 1.0
    assert auroc(probe.held_out, correct) < 0.75


def test_of_equal_layers_the_last_one_is_chosen() -> None:
    states, correct, _ = planted(1, 2.0)
    states[:, 2] = states[:, 1]
    assert MetaCogProbe.fit(states, correct, "p").layers == (2,)


def test_several_layers_give_their_mean_score() -> None:
    states, correct, _ = planted(1, 1.0)
    both = MetaCogProbe.fit(states, correct, "p", "mean_diff", layers=[1, 2])
    alone = [MetaCogProbe.fit(states, correct, "p", "mean_diff", layers=[one]) for one in (1, 2)]
    expected = (scores_of(alone[0], states) + scores_of(alone[1], states)) / 2
    np.testing.assert_allclose(scores_of(both, states), expected)


@pytest.mark.parametrize("method", ["mean_diff", "logreg"])
def test_a_layer_with_equal_states_is_not_chosen(method: Method) -> None:
    states, correct, _ = planted(1, 2.0)
    states[:, 0] = 1.0
    probe = MetaCogProbe.fit(states, correct, "p", method, layers=[0])
    assert np.ptp(scores_of(probe, states)) == 0
    assert MetaCogProbe.fit(states, correct, "p", method).layers == (1,)


def test_auroc_is_the_share_of_ordered_pairs() -> None:
    scores, correct = np.array([3.0, 1.0, 2.0, 2.0]), np.array([True, False, True, False])
    assert auroc(scores, correct) == 3.5 / 4
    low, high = bootstrap(scores, correct)
    assert 0 <= low <= 3.5 / 4 <= high <= 1


@pytest.mark.parametrize("cost_call", [0.0, 0.1, 0.5, 1.0])
def test_a_threshold_has_the_least_cost(cost_call: float) -> None:
    states, correct, _ = planted(1, 0.7)
    probe = MetaCogProbe.fit(states, correct, "p")
    scores = scores_of(probe, states)

    def cost(threshold: float) -> float:
        answered = scores >= threshold
        return float((answered & ~correct).sum() + cost_call * (~answered).sum())

    chosen = probe.calibrate(scores, correct, np.full(COUNT, True), cost_call)
    best = min(map(cost, [*scores, scores.max() + 1]))
    assert chosen.l_yes == chosen.l_no
    assert cost(chosen.l_yes) == pytest.approx(best)


def test_each_threshold_comes_from_its_own_questions() -> None:
    states, correct, _ = planted(1, 2.0)
    probe = MetaCogProbe.fit(states, correct, "p")
    scores = np.array([-2.0, -1.0, 1.0, 2.0, 3.0, 4.0])
    correct = np.array([False, True, False, False, True, True])
    calls = np.array([False, False, True, True, True, True])
    chosen = probe.calibrate(scores, correct, calls)
    assert (chosen.l_no, chosen.l_yes) == (-1.5, 2.5)
    assert [chosen.decide(one) for one in (-2.0, 0.0, 2.5)] == ["call", "own", "answer"]


def test_crossed_thresholds_become_one() -> None:
    states, correct, _ = planted(1, 2.0)
    probe = MetaCogProbe.fit(states, correct, "p")
    scores = np.array([-2.0, -1.0, 1.0, 2.0])
    correct, calls = np.array([False, True, False, True]), np.array([True, True, False, False])
    chosen = probe.calibrate(scores, correct, calls)
    assert chosen.l_yes == chosen.l_no == 1.5


def test_a_stored_probe_is_equal_and_refuses_another_policy(tmp_path: Path) -> None:
    states, correct, _ = planted(2, 1.0)
    probe = MetaCogProbe.fit(states, correct, "a1b2", layers=[1, 2])
    assert probe.held_out is not None
    probe = probe.calibrate(probe.held_out, correct, correct)
    probe.save(tmp_path / "probe.npz")
    stored = MetaCogProbe.load(tmp_path / "probe.npz")
    assert (scores_of(stored, states) == scores_of(probe, states)).all()
    assert stored.facts == probe.facts
    stored.require("a1b2")
    with pytest.raises(ValueError, match=r"policy a1b2, but .* c3d4"):
        stored.require("c3d4")


def test_too_few_questions_of_a_kind_are_refused() -> None:
    states, correct, _ = planted(3, 1.0)
    with pytest.raises(ValueError, match="9 of 400 answers without tools"):
        MetaCogProbe.fit(states, np.arange(COUNT) < 9, "p")
    with pytest.raises(ValueError, match="needs `contrasts`"):
        MetaCogProbe.fit(states, correct, "p", "pca")
