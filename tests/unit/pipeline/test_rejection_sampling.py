"""Demonstrations selected from the stored episodes of a run."""

from dataclasses import replace

import pytest

from agentfly_core.datasets.rejection_sampling import RejectionSampling
from agentfly_core.pipeline.stages import rejection_sampling, warm_start
from agentfly_core.pipeline.stages.rejection_sampling import choose
from agentfly_core.records.parquet import (
    read_trajectories,
    write_problems,
    write_scores,
    write_trajectories,
)
from agentfly_core.records.trajectory import Problem, Scored, Unscored
from agentfly_core.store.artifact import ArtifactKey
from agentfly_core.testing.trajectories import trajectory as played
from agentfly_core.testing.trajectories import turn
from tests.support.experiments import experiment

SUM, PRODUCT = Problem("sum", "What is 2+2?"), Problem("product", "What is 2*3?")


def scored(name, problem, token, reward, role="train", seed=0):
    trajectory = replace(
        played(turn([1], {token: -1.0}), name=name), problem=problem, role=role, seed=seed
    )
    return trajectory, Scored(name, {}, (), reward)


def names(trajectories):
    return [trajectory.id for trajectory in trajectories]


def test_only_episodes_with_enough_reward_are_imitated():
    stored = [
        scored("right", SUM, 7, 1.0),
        scored("nearly", SUM, 8, 0.9),
        scored("nobody knows", SUM, 9, Unscored("the sandbox was gone")),
        scored("greedy", SUM, 10, 1.0, role="baseline"),
    ]
    assert names(RejectionSampling().among(stored, 10)) == ["right"]
    assert names(RejectionSampling(threshold=0.5).among(stored, 10)) == ["right", "nearly"]
    assert {t.role for t in RejectionSampling().among(stored, 10)} == {"demonstration"}


def test_the_best_and_then_the_latest_episodes_come_first():
    stored = [scored("good", SUM, 7, 1.0), scored("best", SUM, 8, 2.0), scored("late", SUM, 9, 1.0)]
    assert names(RejectionSampling(best=2).among(stored, 10)) == ["best", "late"]


def test_equal_episodes_count_once():
    stored = [
        scored("early", SUM, 7, 1.0),
        scored("late", SUM, 7, 1.0),
        scored("other", SUM, 8, 1.0),
    ]
    assert names(RejectionSampling().among(stored, 10)) == ["other", "late"]


def test_the_limit_cuts_problems_with_more_episodes_first():
    stored = [scored(f"sum {n}", SUM, n, 1.0) for n in range(3)] + [
        scored("product", PRODUCT, 9, 1.0, seed=1)
    ]
    assert names(RejectionSampling().among(stored, 2)) == ["sum 2", "product"]


@pytest.fixture
def stored(tmp_path):
    """An experiment that imitates two of the three steps of the run base in its warm start."""
    imitating = experiment(
        tmp_path,
        warm_start={"demonstrations": "run:base@2", "episodes": 8, "settings": {"best": 1}},
    )
    for step in (1, 2, 3):
        episode, score = scored(f"step {step}", SUM, step, 1.0)
        folder = f"runs/base/steps/{step:06d}"
        shard = f"{folder}/rollout-000"
        with imitating.store.publish(ArtifactKey(shard, "rollout", str(step), {})) as made:
            write_trajectories(made / "trajectories.parquet", [episode])
        inputs = {"rollout-000": imitating.store.artifact(shard).digest}
        with imitating.store.publish(
            ArtifactKey(f"{folder}/scored", "score", str(step), inputs)
        ) as made:
            write_scores(made / "scores.parquet", [score])
    return imitating


def test_episodes_come_from_the_named_steps(stored, tmp_path):
    steps = rejection_sampling.scored_steps(stored.store, "base", 2)
    assert [scored.uri.removeprefix("runs/base/steps/") for scored in steps] == [
        "000001/scored",
        "000002/scored",
    ]
    played = rejection_sampling.stored(stored.store, steps, {"sum"})
    assert choose(stored.settings.warm_start, played, tmp_path) == {"demonstrations": 1.0}
    assert names(read_trajectories(tmp_path / "trajectories.parquet")) == ["step 2"]


def test_chosen_episodes_keep_the_digests_of_their_origins(stored):
    store, data = stored.store, ArtifactKey("artifacts/prepare/0", "prepare", "0", {})
    with store.publish(data) as folder:
        write_problems(folder / "train.parquet", [SUM])
    model = ArtifactKey("artifacts/model/0", "model", "0", {})
    with store.publish(model) as folder:
        (folder / "tokenizer.json").write_text("{}")
    store.write_json("runs/base/start.json", store.artifact(model.uri).to_json())
    target = ArtifactKey("artifacts/demonstrate/0", "demonstrate", "0", {"model": "9f2c"})
    of = store, stored.settings.warm_start, target
    chosen = warm_start.choose(*of, store.artifact(model.uri), store.artifact(data.uri))
    origins = {
        f"runs/base/steps/00000{n}/{what}" for n in (1, 2) for what in ("scored", "rollout-000")
    }
    assert set(chosen.manifest["inputs"]) == {"model", *origins}
    assert names(read_trajectories(store.open(chosen) / "trajectories.parquet")) == ["step 2"]


def test_a_held_out_problem_is_not_imitated(stored):
    steps = rejection_sampling.scored_steps(stored.store, "base", 2)
    assert len([*rejection_sampling.stored(stored.store, steps, {"sum"})]) == 2
    assert [*rejection_sampling.stored(stored.store, steps, {"product"})] == []


def test_a_missing_step_of_the_run_is_refused(stored):
    with pytest.raises(ValueError, match=r"'base' .* step 4 in "):
        rejection_sampling.scored_steps(stored.store, "base", 5)
    with pytest.raises(ValueError, match=r"'bass' .* step 1 in "):
        rejection_sampling.scored_steps(stored.store, "bass", 2)


def test_a_run_without_successes_is_refused(stored, tmp_path):
    demanding = stored.settings.warm_start.model_copy(update={"settings": {"threshold": 2.0}})
    settings = stored.settings.model_copy(update={"warm_start": demanding})
    played = rejection_sampling.stored(
        stored.store, rejection_sampling.scored_steps(stored.store, "base", 2), {"sum"}
    )
    with pytest.raises(ValueError, match=r"run:base@2: no episode .* reward of 2"):
        choose(settings.warm_start, played, tmp_path)


@pytest.mark.parametrize("where", ["run:base", "run:base@0", "run:base@last"])
def test_a_source_without_a_step_is_refused(where, tmp_path):
    with pytest.raises(ValueError, match=r"expected run:NAME@STEP .*1 or more"):
        experiment(tmp_path, warm_start={"demonstrations": where})


def test_episodes_are_chosen_without_untrained_speakers():
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
