"""Contents of summary.json."""

from dataclasses import replace
from pathlib import Path

import pytest

from agentfly_core.config.experiment import Settings
from agentfly_core.config.site import Site
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.experiment.run_layout import RunLayout
from agentfly_core.records.parquet import EPISODES, SCORES, write_scores, write_trajectories
from agentfly_core.records.trajectory import Ending, Scored, Unscored
from agentfly_core.runs.run import opened, stages_before
from agentfly_core.runs.summary import Evaluation, Evaluations, before_steps, summarise
from agentfly_core.store.artifact import Artifact, ArtifactKey
from agentfly_core.store.stage_metrics import measuring
from agentfly_core.store.store import Store
from agentfly_core.testing.trajectories import trajectory, turn

KEYS = (
    "run experiment steps success_before success_after interval_before interval_after "
    "seconds policy_digest"
)
LINKS = "prefect_flow_run_ids"


def published(store: Store, target: ArtifactKey) -> Artifact:
    with store.publish(target) as folder, measuring(folder):
        (folder / "content").write_text(target.uri)
    return store.artifact(target.uri)


BEFORE, LATER = 1763740000000, 4102444800000


def evaluation(success: float, seconds: float, time_ms: int = LATER) -> Evaluation:
    interval = success - 0.1, success + 0.1
    return Evaluation(f"{success}", "test", success, interval, {}, seconds, time_ms)


def test_a_summary_has_its_keys_and_the_seconds_of_its_stages(
    tmp_path: Path,
) -> None:
    data = {"use": "tests.support.problems:clean", "train": 8, "test": 4}
    warm = {"demonstrations": "tests.support.policies:numbered", "rounds": 2}
    values = {
        "model": "nano:calculator",
        "data": data,
        "rewards": {"agentfly_core.rewards.exact:exact": 1.0},
        "steps": 2,
        "warm_start": warm,
    }
    settings = Settings.model_validate(values)
    experiment = Experiment.of("tiny", settings, {}, Site(), Store.at(str(tmp_path), tmp_path))
    problems, model = (
        published(experiment.store, StageKeys(settings).prepare()),
        published(experiment.store, StageKeys(settings).model()),
    )
    episodes = published(experiment.store, StageKeys(settings).demonstrations(model, problems, {}))
    rounds = [
        published(experiment.store, StageKeys(settings).warm_start(model, episodes, number))
        for number in (1, 2)
    ]
    for step in (1, 2):
        metrics = {"time/rollout": 2.0, "time/score": 0.25, "time/update": 1.0}
        experiment.store.write_json(
            RunLayout("demo").step(step).metrics, {"step": step, "metrics": metrics}
        )
    with opened(experiment, "demo") as run:
        run.link("prefect_flow_run_ids", "5f0e")
        made = before_steps(problems, model, [episodes, *rounds], None)
        run.remember_start(rounds[-1], made)
        assert stages_before(run.store, "demo") == made
        summary = summarise(run, rounds[-1], [evaluation(0.5, 3.0), evaluation(0.75, 4.0)])
        compared = (evaluation(0.5, 3.0, BEFORE), evaluation(0.75, 4.0))
        again = summarise(run, rounds[-1], compared)
        means = {"right": 0.5, "brief": 0.25}
        several = summarise(run, rounds[-1], [replace(one, rewards=means) for one in compared])
    assert several["evaluations"]["after"]["rewards"] == means
    assert list(summary) == [*KEYS.split(), *LINKS.split()]
    assert list(summary["seconds"]) == [
        "prepare",
        "model",
        "warm_start",
        "demonstrate",
        "rollout",
        "score",
        "update",
        "evaluate",
    ]
    assert [summary["seconds"][name] for name in ("rollout", "score", "update", "evaluate")] == [
        4.0,
        0.5,
        2.0,
        7.0,
    ]
    assert (summary["success_before"], summary["success_after"], summary["policy_digest"]) == (
        0.5,
        0.75,
        rounds[-1].digest,
    )
    assert summary["prefect_flow_run_ids"] == ["5f0e"]
    # the run began after the dataset had been published, and the first evaluation played
    assert (again["seconds"]["prepare"], again["seconds"]["evaluate"]) == (0.0, 4.0)


def test_an_evaluation_without_scores_gives_reason_and_remedy(
    tmp_path: Path,
) -> None:
    data = {"use": "tests.support.problems:clean", "train": 8, "test": 4}
    rewards = {"agentfly_core.rewards.exact:exact": 1.0}
    settings = {"model": "nano:calculator", "data": data, "rewards": rewards, "steps": 2}
    experiment = Experiment.of(
        "tiny",
        Settings.model_validate(settings),
        {},
        Site(),
        Store.at(str(tmp_path), tmp_path),
    )
    lost = replace(
        trajectory(turn([1], {3: -1.0})), ending=Ending.FAILED, error="ServiceFailure: shop died."
    )
    with experiment.store.publish(
        target := ArtifactKey("artifacts/evaluate/9f2c/test-000", "evaluate", "key", {})
    ) as folder:
        write_trajectories(folder / EPISODES, [lost])
    with experiment.store.publish(
        scored := ArtifactKey("artifacts/evaluate/9f2c/scored", "score", "key", {})
    ) as folder:
        write_scores(
            folder / SCORES, [Scored(lost.id, {}, (), Unscored(f"episode failed: {lost.error}"))]
        )
    rollout, score = experiment.store.artifact(target.uri), experiment.store.artifact(scored.uri)
    with pytest.raises(ValueError) as caught:
        Evaluations(experiment).of(rollout, "test", [rollout], score)
    assert str(caught.value) == (
        "No episode of the evaluation on test has a score: episode failed: ServiceFailure: shop "
        "died. Fix the cause, remove artifacts/evaluate/9f2c/test-000, "
        f"artifacts/evaluate/9f2c/scored from {tmp_path}, and repeat the evaluation."
    )
