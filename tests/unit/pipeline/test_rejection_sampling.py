"""Demonstrations chosen from what a run has stored."""

from dataclasses import replace

import pytest

from agentfly_core.pipeline.stages import rejection_sampling
from agentfly_core.pipeline.stages.rejection_sampling import choose
from agentfly_core.records.parquet import read_trajectories, write_scores, write_trajectories
from agentfly_core.records.trajectory import Problem, Scored, Unscored
from agentfly_core.rl.rejection_sampling import RejectionSampling
from agentfly_core.store.artifact import ArtifactKey
from agentfly_core.testing.trajectories import trajectory as played
from agentfly_core.testing.trajectories import turn
from tests.support.experiments import experiment

SUM, PRODUCT = Problem("sum", "What is 2+2?"), Problem("product", "What is 2*3?")


def scored(name, problem, said, reward, role="train", seed=0):
    trajectory = replace(
        played(turn([1], {said: -1.0}), name=name), problem=problem, role=role, seed=seed
    )
    return trajectory, Scored(name, {}, (), reward)


def names(found):
    return [trajectory.id for trajectory in found]


def test_only_what_earned_enough_is_imitated():
    stored = [
        scored("right", SUM, 7, 1.0),
        scored("nearly", SUM, 8, 0.9),
        scored("nobody knows", SUM, 9, Unscored("the sandbox was gone")),
        scored("greedy", SUM, 10, 1.0, role="baseline"),
    ]
    assert names(RejectionSampling().among(stored, 10)) == ["right"]
    assert names(RejectionSampling(threshold=0.5).among(stored, 10)) == ["right", "nearly"]
    assert {t.role for t in RejectionSampling().among(stored, 10)} == {"demonstration"}


def test_of_a_problem_the_best_come_first_and_of_these_the_latest():
    stored = [scored("good", SUM, 7, 1.0), scored("best", SUM, 8, 2.0), scored("late", SUM, 9, 1.0)]
    assert names(RejectionSampling(best=2).among(stored, 10)) == ["best", "late"]


def test_what_says_the_same_counts_once():
    stored = [
        scored("early", SUM, 7, 1.0),
        scored("late", SUM, 7, 1.0),
        scored("other", SUM, 8, 1.0),
    ]
    assert names(RejectionSampling().among(stored, 10)) == ["other", "late"]


def test_what_is_cut_off_is_what_a_problem_has_more_of():
    stored = [scored(f"sum {n}", SUM, n, 1.0) for n in range(3)] + [
        scored("product", PRODUCT, 9, 1.0, seed=1)
    ]
    assert names(RejectionSampling().among(stored, 2)) == ["sum 2", "product"]


@pytest.fixture
def stored(tmp_path):
    """An experiment whose warm start imitates steps 1 and 2 of the run base, which has a third."""
    found = experiment(
        tmp_path,
        warm_start={"demonstrations": "run:base@2", "episodes": 8, "settings": {"best": 1}},
    )
    for step in (1, 2, 3):
        episode, score = scored(f"step {step}", SUM, step, 1.0)
        folder = f"runs/base/steps/{step:06d}"
        shard = f"{folder}/rollout-000"
        with found.store.publish(ArtifactKey(shard, "rollout", str(step), {})) as made:
            write_trajectories(made / "trajectories.parquet", [episode])
        inputs = {"rollout-000": found.store.artifact(shard).digest}
        with found.store.publish(
            ArtifactKey(f"{folder}/scored", "score", str(step), inputs)
        ) as made:
            write_scores(made / "scores.parquet", [score])
    return found


def test_the_episodes_of_the_steps_that_are_named_are_chosen_from(stored, tmp_path):
    found = rejection_sampling.artifacts(stored.store, "base", 2)
    assert [artifact.uri.removeprefix("runs/base/steps/") for artifact in found] == [
        "000001/scored",
        "000001/rollout-000",
        "000002/scored",
        "000002/rollout-000",
    ]
    played = rejection_sampling.stored(stored.store, found, {"sum"})
    assert choose(stored.settings.warm_start, played, tmp_path) == {"demonstrations": 1.0}
    assert names(read_trajectories(tmp_path / "trajectories.parquet")) == ["step 2"]


def test_a_problem_that_this_experiment_holds_out_is_not_imitated(stored):
    artifacts = rejection_sampling.artifacts(stored.store, "base", 2)
    assert len([*rejection_sampling.stored(stored.store, artifacts, {"sum"})]) == 2
    assert [*rejection_sampling.stored(stored.store, artifacts, {"product"})] == []


def test_a_step_that_the_run_has_not_is_refused(stored):
    with pytest.raises(
        ValueError, match=r"The run 'base' has not scored a step 4 in .*; its last one is 3"
    ):
        rejection_sampling.artifacts(stored.store, "base", 5)
    with pytest.raises(
        ValueError, match=r"The run 'bass' has not scored a step 1 in .*; runs there: base"
    ):
        rejection_sampling.artifacts(stored.store, "bass", 2)


def test_a_run_without_successes_is_refused(stored, tmp_path):
    demanding = stored.settings.warm_start.model_copy(update={"settings": {"threshold": 2.0}})
    settings = stored.settings.model_copy(update={"warm_start": demanding})
    played = rejection_sampling.stored(
        stored.store, rejection_sampling.artifacts(stored.store, "base", 2), {"sum"}
    )
    with pytest.raises(
        ValueError, match=r"run:base@2 has no episode of a training problem .* reward of 2 or more"
    ):
        choose(settings.warm_start, played, tmp_path)


@pytest.mark.parametrize("where", ["run:base", "run:base@0", "run:base@last"])
def test_a_source_without_a_step_is_refused(where, tmp_path):
    with pytest.raises(ValueError, match="expected run:NAME@STEP with a step of 1 or more"):
        experiment(tmp_path, warm_start={"demonstrations": where})


def test_episodes_are_chosen_whole_without_who_is_not_trained_or_earned_too_little():
    def spoken(episode, agent, reward, policy=""):
        trajectory, score = scored(f"{episode}-{agent}", SUM, ord(episode), reward)
        of_team = replace(trajectory, agent=agent, episode=episode, policy=policy)
        return of_team, score

    stored = [
        *(spoken("a", "planner", 1.0), spoken("a", "searcher", 1.0)),
        *(spoken("b", "planner", 2.0), spoken("b", "searcher", 0.5)),
        *(spoken("c", "planner", 1.0), spoken("c", "critic", 1.0, policy="run:demo@7")),
    ]
    assert names(RejectionSampling(best=3).among(stored, 10)) == [
        *("b-planner", "c-planner"),
        *("a-planner", "a-searcher"),
    ]
    assert names(RejectionSampling().among(stored, 1)) == ["b-planner"]
