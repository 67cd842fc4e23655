"""Figures of an evaluation other than its success."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from mlflow.utils.validation import _validate_metric

from agentfly_core.config import loading
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.pipeline.loop import evaluation as evaluation_loop
from agentfly_core.pipeline.loop.evaluation import Evaluator
from agentfly_core.pipeline.loop.stages import Stages
from agentfly_core.pipeline.playing import require_tags
from agentfly_core.records import dataset
from agentfly_core.records.intervals import Rate
from agentfly_core.records.parquet import EPISODES, SCORES, write_scores, write_trajectories
from agentfly_core.records.trajectory import Problem, Scored, Unscored, tag
from agentfly_core.runs.summary import Evaluation, Evaluations, rates_by
from agentfly_core.store.artifact import Pointer
from agentfly_core.store.stage_metrics import measuring
from agentfly_core.system.formats.foreign_names import mlflow_key
from agentfly_core.system.service import ServiceLost
from agentfly_core.testing.trajectories import trajectory, turn
from tests.support.experiments import TINY, experiment

POLICY = Pointer("runs/demo/steps/000002/policy", "9f2c")
KINDS = {"use": "tests.support.problems:kinds", "train": 8, "test": 3}
FOUR = {"episodes": 4, "pass_at": [1, 2, 4], "by": "kind"}
Rewards = Mapping[str, Sequence[float | Unscored]]


def played(there: Experiment, rewards: Rewards) -> None:
    """Publish a dataset and episodes of its test problems with these rewards by problem id."""
    store = there.store
    with store.publish(target := StageKeys(there.settings).prepare()) as folder, measuring(folder):
        dataset.prepare(
            there.settings.data, there.settings.data_seed, folder, folder / "quarantine.json"
        )
    data = store.artifact(target.uri)
    problems = {one.id: one for one in dataset.split(store.open(data), "test")}
    reply = turn([1], {3: -1.0})
    episodes, scores = [], []
    for problem, earned in rewards.items():
        for chain, reward in enumerate(earned):
            name = f"{problem} {chain}"
            episodes.append(trajectory(reply, name=name, problem=problems[problem]))
            rewards_by_name = {} if isinstance(reward, Unscored) else {"exact": reward}
            scores.append(Scored(name, rewards_by_name, (), reward))
    target = StageKeys(there.settings).evaluation(POLICY, data, "test", 0, {})
    with store.publish(target) as folder, measuring(folder):
        write_trajectories(folder / EPISODES, episodes)
    target = StageKeys(there.settings).scored([store.artifact(target.uri)])
    with store.publish(target) as folder, measuring(folder):
        write_scores(folder / SCORES, scores)


def evaluated(folder: Path, rewards: Rewards, **evaluate: Any) -> Evaluation:
    here = experiment(folder, data=KINDS, evaluate={**FOUR, **evaluate})
    played(here, rewards)
    return Evaluations(here).stored(POLICY, "test", here.dataset)


def test_pass_at_k_is_a_mean_over_problems_with_an_interval(tmp_path: Path) -> None:
    evaluation = evaluated(
        tmp_path, {"c-000": [1, 0, 0, 0], "c-001": [0, 0, 0, 0], "c-002": [1, 1, 1, 1]}
    )
    assert evaluation.success == pytest.approx((0.25 + 0 + 1) / 3)
    assert evaluation.pass_at == {
        1: Rate.of({"a": 0.25, "b": 0.0, "c": 1.0}),
        2: Rate.of({"a": 0.5, "b": 0.0, "c": 1.0}),
        4: Rate.of({"a": 1.0, "b": 0.0, "c": 1.0}),
    }


def test_a_problem_with_too_few_scores_is_left_out(tmp_path: Path) -> None:
    lost = Unscored("judge: ServiceFailure: 503")
    evaluation = evaluated(
        tmp_path, {"c-000": [1, 0, 0, lost], "c-001": [0, 0, 0, 0], "c-002": [1, lost, lost, lost]}
    )
    assert {k: rate.problems for k, rate in evaluation.pass_at.items()} == {1: 3, 2: 2, 4: 1}
    assert evaluation.pass_at[4].share == 0.0


def test_success_is_reported_by_the_values_of_a_fact(tmp_path: Path) -> None:
    evaluation = evaluated(
        tmp_path, {"c-000": [1, 1, 1, 1], "c-001": [0, 0, 0, 1], "c-002": [1, 1, 0, 0]}
    )
    assert evaluation.by == {
        "kind": {"easy": Rate.of({"c-000": 1.0, "c-002": 0.5}), "hard": Rate.of({"c-001": 0.25})}
    }
    metrics = evaluation.metrics
    assert metrics["evaluate/test/kind/hard/success"] == 0.25
    assert metrics["evaluate/test/kind/easy/problems"] == 2
    assert metrics["evaluate/test/pass_at_4_low"] == evaluation.pass_at[4].interval[0]


def test_values_of_other_types_have_different_metric_names() -> None:
    problems = [Problem("a", "?", {"sign": "+"}), Problem("b", "?", {"sign": 2})]
    rates = rates_by(
        lambda problem: tag(problem, "sign", "evaluate.by"), problems, {"a": 1.0, "b": 0.0}
    )
    assert {value: rate.share for value, rate in rates.items()} == {"+": 1.0, "2": 0.0}
    evaluation = Evaluation("9f2c", "test", 0.5, (0.0, 1.0), {}, 1.0, 0, by={"sign": rates})
    assert evaluation.metrics["evaluate/test/sign/+/success"] == 1.0


def test_each_value_of_a_fact_has_its_own_mlflow_metric_name() -> None:
    odd = ["", ".", "..", "/x", "x/", "a/../b", "a//b", "0.5", "+", "_2b", "+0", "\u2b00", "a\n"]
    odd += ["_empty", "_5f2b", "x" * 300, "x" * 299, "/" * 300, "half \ud83d", "half ?", "é", "a:b"]
    odd += ["very_hard", " ", "%2f", "/%2f", "_x", "_x2f"]
    rates = {value: Rate.of({"a": 1.0}) for value in odd}
    for fact in ("kind", "a/b", "f" * 300):
        evaluation = Evaluation("9f2c", "test", 1.0, (0.0, 1.0), {}, 1.0, 0, by={fact: rates})
        keys = {mlflow_key(name) for name in evaluation.metrics}
        assert len(keys) == 4 + 4 * len(odd)
        for key in keys:
            _validate_metric(key, 1.0, 0, 0)
    evaluation = Evaluation("9f2c", "test", 1.0, (0.0, 1.0), {}, 1.0, 0, by={"kind": rates})
    assert "evaluate/test/kind/very_hard/success" in map(mlflow_key, evaluation.metrics)


def test_evaluations_on_further_datasets_are_read(tmp_path: Path) -> None:
    hard = {"use": "tests.support.problems:clean", "test": 2}
    later = {"use": "tests.support.problems:clean", "test": 1}
    here = experiment(tmp_path, evaluate={"datasets": {"hard": hard, "later": later}})
    played(here, {f"c-{i:03d}": [1] for i in range(4)})
    played(here.on(here.settings.on(here.settings.evaluate.datasets["hard"])), {"c-001": [0]})
    stored = Evaluations(here)
    evaluation = stored.with_datasets(POLICY, stored.stored(POLICY, "test", here.dataset))
    assert {name: (one.split, one.success) for name, one in evaluation.datasets.items()} == {
        "hard": ("hard", 0.0)
    }
    assert evaluation.seconds_since(0) == evaluation.seconds + evaluation.datasets["hard"].seconds
    hard_rate = Rate.of({"c-001": 0.0}).to_json()
    assert evaluation.to_json()["datasets"] == {
        "hard": {"policy": "9f2c", **hard_rate, "rewards": {"exact": 0.0}}
    }


def test_a_stored_evaluation_starts_no_services(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hard = {"use": "tests.support.problems:clean", "test": 2}
    here = experiment(tmp_path, evaluate={"datasets": {"hard": hard}})
    played(here, {f"c-{i:03d}": [1] for i in range(4)})
    services = Mock(side_effect=ServiceLost("sampler"))
    monkeypatch.setattr(evaluation_loop, "rollout_services", services)
    stages = Stages()
    monkeypatch.setattr(stages, "require_room", lambda *_: None)
    evaluator = Evaluator(stages, here, here.dataset)
    with pytest.raises(ServiceLost):
        evaluator.once(POLICY, tmp_path)
    played(here.on(here.settings.on(here.settings.evaluate.datasets["hard"])), {"c-001": [0]})
    evaluation = evaluator.once(POLICY, tmp_path)
    assert (evaluation.success, evaluation.datasets["hard"].success) == (1.0, 0.0)


def test_an_evaluation_without_options_has_only_the_usual_keys(tmp_path: Path) -> None:
    evaluation = evaluated(tmp_path, {"c-000": [1]}, episodes=1, pass_at=[], by="")
    before = ["policy", "problems", "success", "interval_low", "interval_high", "rewards"]
    assert list(evaluation.to_json()) == before


def test_the_mean_of_each_reward_is_over_scored_episodes(tmp_path: Path) -> None:
    lost = Unscored("judge: ServiceFailure: 503")
    evaluation = evaluated(tmp_path, {"c-000": [1, 0.5], "c-001": [0, lost]})
    assert evaluation.to_json()["rewards"] == {"exact": 0.5}
    assert evaluation.metrics["evaluate/test/reward_extra/exact/mean"] == 0.5


def test_reporting_options_change_no_evaluation_key_or_digest(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY)

    def settings_with(*overrides: str) -> Any:
        file = str(tmp_path / "tiny.yaml")
        return loading.read(file, ["evaluate.episodes=4", *overrides]).settings

    plain = settings_with()
    reporting = settings_with(
        "evaluate.pass_at=[1, 4]",
        "evaluate.by=kind",
        'evaluate.datasets={hard: {use: "tests.support.problems:clean", test: 4}}',
    )
    data = Pointer("artifacts/prepare/ab", "da7a")
    first, second = (
        StageKeys(one).evaluation(POLICY, data, "test", 0, {}) for one in (plain, reporting)
    )
    assert first == second
    changes = loading.differences(plain.model_dump(mode="json"), reporting.model_dump(mode="json"))
    assert {change.key.split(".")[1] for change in changes} == {"pass_at", "by", "datasets"}
    assert all(change.resumable for change in changes)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("evaluate.pass_at=[8]", r"pass_at: got 8, but evaluate.* is 1.*evaluate\.episodes=8"),
        ("evaluate.datasets={test: {use: 'a:b', test: 4}}", "got the name 'test'. Use"),
        ("evaluate.datasets={a/b: {use: 'a:b', test: 4}}", "got the name 'a/b'. Use"),
        ("evaluate.datasets={hard: {use: 'a:b'}}", r"evaluate\.datasets\.hard\.test: this key"),
    ],
)
def test_an_impossible_evaluation_is_refused(tmp_path: Path, override: str, message: str) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY)
    with pytest.raises(ValueError, match=message):
        loading.read(str(tmp_path / "tiny.yaml"), [override])


def test_a_fact_with_no_value_is_refused(tmp_path: Path) -> None:
    here = experiment(tmp_path, evaluate={"by": "kind"})
    some = [Problem("a", "?", {"kind": "hard"}), Problem("b", "?", {"answer": "2"})]
    with pytest.raises(ValueError, match=r"fact 'kind' \(its facts: answer\)"):
        require_tags(here.settings.evaluate.by, some)
    require_tags(here.settings.evaluate.by, some[:1])
