"""Outcomes of a policy on held-out problems, from its stored episodes."""

from dataclasses import replace
from pathlib import Path

import pytest

from agentfly_core.config.experiment import Settings
from agentfly_core.config.site import Site
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.records.dataset import prepare
from agentfly_core.records.parquet import EPISODES, SCORES, write_scores, write_trajectories
from agentfly_core.records.trajectory import (
    BadCall,
    Message,
    Problem,
    Scored,
    ToolCall,
    Trajectory,
    Unscored,
    of_task,
)
from agentfly_core.reports.nights.held_out import HeldOut, held_out, outcomes
from agentfly_core.reports.nights.promotion_gate import compare_goal
from agentfly_core.runs.summary import Evaluations
from agentfly_core.store.artifact import Artifact, ArtifactKey, Pointer
from agentfly_core.store.store import Store
from agentfly_core.testing.trajectories import trajectory, turn

GOOD, BAD = ToolCall("answer", {"value": "99"}), BadCall("{", "unterminated")


def episode(name: str, problem: str, tokens: int, *calls: ToolCall | BadCall) -> Trajectory:
    sampled = dict.fromkeys(range(tokens), -0.1)
    reply = turn([1], sampled, reply=Message("assistant", "", calls))
    task, _, own = problem.rpartition("/")
    held = of_task(Problem(own, "?"), task or "single")
    return trajectory(reply, name=name, problem=held, role="evaluation")


def score(name: str, **rewards: float) -> Scored:
    return Scored(name, rewards, (), sum(rewards.values()))


def test_an_outcome_is_the_mean_over_episodes_of_a_problem() -> None:
    episodes = [episode("t0", "p", 10, GOOD), episode("t1", "p", 30, GOOD, BAD)]
    scores = [score("t0", exact=1.0, short=0.5), score("t1", exact=0.0, short=0.0)]
    assert outcomes(episodes, scores, "exact") == {
        "p": {
            "goal": 0.5,
            "reward/exact": 0.5,
            "reward/short": 0.25,
            "tokens": 20.0,
            "unreadable_calls": 0.25,
        }
    }


def test_a_problem_of_a_mixture_has_its_tasks_rewards() -> None:
    episodes = [episode("t0", "sums/p", 10, GOOD), episode("t1", "shop/p", 30, GOOD)]
    scores = [score("t0", exact=1.0, goal=1.0), score("t1", bought=0.5, goal=0.0)]
    by_problem = outcomes(episodes, scores, "goal")
    of_both = {"tokens", "unreadable_calls", "goal"}
    assert by_problem["sums/p"].keys() == of_both | {"reward/exact", "task/sums"}
    assert by_problem["shop/p"].keys() == of_both | {"reward/bought", "task/shop"}
    assert (by_problem["sums/p"]["task/sums"], by_problem["shop/p"]["task/shop"]) == (1.0, 0.0)


def test_an_episode_without_calls_has_no_unreadable_calls() -> None:
    by_problem = outcomes([episode("t0", "p", 3)], [score("t0", exact=0.5)], "exact")
    assert (by_problem["p"]["unreadable_calls"], by_problem["p"]["goal"]) == (0.0, 0.0)


def test_an_unscored_problem_is_kept_without_an_outcome() -> None:
    episodes = [episode("t0", "p", 10, BAD), episode("t1", "p", 30), episode("t2", "q", 5)]
    lost = Unscored("exact: TimeoutError")
    scores = [Scored("t0", {}, (), lost), score("t1", exact=1.0), Scored("t2", {}, (), lost)]
    by_problem = outcomes(episodes, scores, "exact")
    assert by_problem["p"]["goal"] == 1.0 and by_problem["p"]["tokens"] == 30.0
    assert by_problem["p"]["unscored"] == 0.5
    assert by_problem["q"] == {}


def team(problem: str, chain: int, *calls: ToolCall | BadCall) -> list[Trajectory]:
    """One episode of a planner and two searchers with two contexts each."""
    planner, searcher = episode("planner", problem, 10), episode("searcher", problem, 20, *calls)
    again = replace(searcher.turns[0], context=1, call=1)
    searcher = replace(searcher, turns=(*searcher.turns, again))
    name = f"{problem}-{chain}"
    return [
        replace(one, id=f"{name}-{agent}", episode=name, chain=chain, agent=agent)
        for agent, one in (("planner", planner), ("searcher", searcher), ("searcher/2", searcher))
    ]


def test_an_episode_of_several_speakers_is_one_outcome() -> None:
    played = [*team("p", 0, GOOD), *team("p", 1, GOOD, BAD)]
    scores = [score(one.id, exact=float(one.chain == 0)) for one in played]
    assert outcomes(played, scores, "exact") == {
        "p": {"goal": 0.5, "reward/exact": 0.5, "tokens": 90.0, "unreadable_calls": 0.25}
    }


def test_policies_with_other_speakers_are_compared_by_problem() -> None:
    played = [one for problem in "pqrs" for one in team(problem, 0)]
    before = [score(one.id, exact=float(one.problem.id == "p")) for one in played]
    after = [score(one.id, exact=1.0) for one in played]
    champion, challenger = (HeldOut("77b0", outcomes(played, s, "exact")) for s in (before, after))
    comparison = compare_goal(champion, challenger, "goal", 0.05)
    assert (comparison.champion, comparison.challenger, comparison.difference) == (0.25, 1.0, 0.75)
    assert comparison.problems == 4


@pytest.fixture
def experiment(tmp_path: Path) -> Experiment:
    settings = {
        "model": "nano:calculator",
        "data": {"use": "tests.support.problems:clean", "train": 2, "validation": 0, "test": 3},
        "rewards": {"agentfly_core.rewards.exact:exact": 1.0},
        "rollout": {"shard": 2},
        "steps": 1,
    }
    return Experiment.of(
        "tiny", Settings.model_validate(settings), {}, Site(), Store.at(str(tmp_path), tmp_path)
    )


def published(experiment: Experiment, target: ArtifactKey, **content: object) -> Artifact:
    """Publish an artifact with these episodes or scores."""
    with experiment.store.publish(target) as folder:
        if "episodes" in content:
            write_trajectories(folder / EPISODES, content["episodes"])  # type: ignore[arg-type]
        elif "scores" in content:
            write_scores(folder / SCORES, content["scores"])  # type: ignore[arg-type]
        else:
            settings = experiment.settings
            prepare(settings.data, settings.data_seed, folder, folder / "quarantine.json")
    return experiment.store.artifact(target.uri)


def test_an_evaluation_is_read_from_all_shards(experiment: Experiment) -> None:
    settings, policy = experiment.settings, Pointer("artifacts/model/9f2c", "9f2c" * 16)
    data = published(experiment, StageKeys(settings).prepare())
    assert not Evaluations(experiment).is_complete(policy, "test", data)
    played = [[episode("t0", "c-000", 3), episode("t1", "c-001", 3)], [episode("t2", "c-002", 3)]]
    shards = [
        published(
            experiment,
            StageKeys(settings).evaluation(policy, data, "test", shard, {}),
            episodes=episodes,
        )
        for shard, episodes in enumerate(played)
    ]
    scores = [score("t0", exact=1.0), score("t1", exact=0.0), score("t2", exact=1.0)]
    assert not Evaluations(experiment).is_complete(policy, "test", data)
    scored = published(experiment, StageKeys(settings).scored(shards), scores=scores)
    assert Evaluations(experiment).is_complete(policy, "test", data)
    outcomes_of_policy = held_out(Evaluations(experiment), policy, data)
    assert outcomes_of_policy.dataset == data.digest
    assert {name: each["goal"] for name, each in outcomes_of_policy.by_problem.items()} == {
        "c-000": 1.0,
        "c-001": 0.0,
        "c-002": 1.0,
    }
    other = replace(policy, digest="0" * 64)
    with pytest.raises(FileNotFoundError):
        held_out(Evaluations(experiment), other, data)
    assert not Evaluations(experiment).is_complete(other, "test", data)
    (experiment.store.root / scored.uri / "MANIFEST.json").write_text("{")
    assert not Evaluations(experiment).is_complete(policy, "test", data)


def test_a_selection_of_problems_has_the_same_dataset() -> None:
    held = HeldOut("77b0", {"a": {"goal": 1.0}, "b": {}})
    assert held.where(lambda problem: problem == "b") == HeldOut("77b0", {"b": {}})
