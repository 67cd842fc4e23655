"""Both agents with a simulated policy: success and calls follow from closed forms."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist
from types import SimpleNamespace
from typing import Any

import pytest

from agentfly_core.authoring.tool import Tool, tool
from agentfly_core.environments.database import Database
from agentfly_core.pipeline.loop.library import load_experiment
from agentfly_core.recipes.tptu import evaluation
from agentfly_core.recipes.tptu import tools as distractors
from agentfly_core.recipes.tptu.agents import FINISH, OneStep, Sequential
from agentfly_core.recipes.tptu.rewards import planning, sql_accuracy
from agentfly_core.records.trajectory import Problem, Scored, Unscored
from agentfly_core.rewards.exact import exact
from agentfly_core.rollout.episode import RolloutSpec
from agentfly_core.testing import (
    Simulated,
    problems_of,
    rollout_spec,
    scores_of_policy,
    trajectory,
    turn,
)
from agentfly_core.tools.python import python
from agentfly_core.tools.sql import sql
from benchmarks.office_skills import SKILLS, TABLES
from tests.support.project import ROOT

SEED = 903
KINDS = ["one", "square", "two", "three"]
DISTRACTORS = [one for one in vars(distractors).values() if isinstance(one, Tool)]
AGENTS = {"one_step": OneStep(notes=TABLES), "sequential": Sequential(notes=TABLES)}
Scores = Mapping[str, Mapping[str, float]]


def problems(size: int, *kinds: str) -> list[Problem]:
    made = problems_of(
        "agentfly_core.recipes.tptu.dataset:office_plans",
        seed=SEED,
        train=size,
        validation=1,
        test=1,
        kinds=list(kinds),
    )
    return made["train"]


def rules(agent: OneStep, *tools: Tool) -> RolloutSpec:
    return rollout_spec(
        *(tools or (sql, python, *DISTRACTORS)),
        agent=agent,
        max_turns=20,
        max_tokens=10_000,
        max_model_len=100_000,
        limits={Database: 8}
        if any(tool.signature.environments for tool in tools or (sql,))
        else {},
    )


async def played(agent: str, drawn: Sequence[Problem]) -> Scores:
    policy = Simulated(SKILLS)
    scores = await scores_of_policy(policy, drawn, rules(AGENTS[agent]), [exact, planning])
    assert policy.facts_read == 0
    return scores


def calls(problem: Problem, agent: str) -> int:
    """A plan, inputs and an answer; one by one, also a plan for each step and an empty one."""
    steps = len(problem.facts["plan"])
    return steps + 2 if agent == "one_step" else 2 * steps + 2


@pytest.mark.parametrize("agent", AGENTS)
async def test_both_agents_solve_independent_questions(agent: str) -> None:
    drawn = problems(12, *KINDS)
    scores = await played(agent, drawn)
    for problem in drawn:
        assert scores[problem.id]["exact"] == scores[problem.id]["planning"] == 1.0
        assert scores[problem.id]["planning/calls"] == calls(problem, agent)


def test_planning_at_once_takes_fewer_calls() -> None:
    assert all(calls(one, "one_step") < calls(one, "sequential") for one in problems(4, *KINDS))


async def test_planning_at_once_finds_half_of_the_branches() -> None:
    drawn = problems(40, "branch")
    solved = sum(one["exact"] for one in (await played("one_step", drawn)).values())
    half_width = NormalDist().inv_cdf(0.995) * (len(drawn) * 0.25) ** 0.5
    assert abs(solved - len(drawn) / 2) <= half_width


async def test_planning_after_each_result_finds_every_branch() -> None:
    drawn = problems(16, "branch")
    scores = await played("sequential", drawn)
    assert [one["exact"] for one in scores.values()] == [1.0] * len(drawn)


@pytest.mark.parametrize("agent", AGENTS)
async def test_renamed_tools_and_distractors_change_nothing(agent: str) -> None:
    drawn, bare = problems(4, *KINDS), rules(AGENTS[agent], sql, python)
    before = await scores_of_policy(Simulated(SKILLS), drawn, bare, [exact, planning, sql_accuracy])
    names = {"sql": "query", "python": "compute"}
    renamed = [replace(sql, name="query"), *DISTRACTORS, replace(python, name="compute")]
    for problem in drawn:
        for step in problem.facts["plan"]:
            step["tool"] = names[step["tool"]]
    after = await scores_of_policy(
        Simulated(SKILLS), drawn, rules(AGENTS[agent], *renamed), [exact, planning, sql_accuracy]
    )
    assert {name: {**one, "sql_accuracy": 1.0} for name, one in after.items()} == before


async def test_without_the_tables_no_sql_is_written() -> None:
    drawn = problems(2, "one")
    scores = await scores_of_policy(Simulated(SKILLS), drawn, rules(OneStep()), [exact])
    assert [one["exact"] for one in scores.values()] == [0.0, 0.0]


async def test_the_loop_guard_stops_at_the_cap() -> None:
    plan = '[{"tool": "weather", "subtask": "weather", "inputs": [], "depends_on": []}]'
    policy = Simulated([lambda visible: plan if visible.speaker != "worker" else "Ghent"])
    spec = rules(Sequential(max_steps=5), distractors.weather)
    [scores] = (await scores_of_policy(policy, problems(1, "one"), spec, [planning])).values()
    assert scores["planning/over_use"] == 1.0
    assert scores["planning/calls"] == 5 + 5 + 1


@pytest.mark.parametrize("agent", AGENTS)
async def test_a_reply_that_is_no_plan_ends_the_episode(agent: str) -> None:
    policy, drawn = Simulated([lambda visible: "I would ask Anna."]), problems(1, "one")
    spec = rules(AGENTS[agent], distractors.weather)
    [scores] = (await scores_of_policy(policy, drawn, spec, [exact, planning])).values()
    assert scores["planning/format"] == scores["exact"] == 0.0
    assert scores["planning/calls"] == 1.0


async def test_an_unknown_tool_gets_an_error() -> None:
    plan = '[{"tool": "magic", "subtask": "x", "inputs": [], "depends_on": []}]'
    policy = Simulated([lambda visible: plan if len(visible.texts) < 3 else visible.texts[-1]])
    spec = rules(OneStep(), distractors.weather)
    [scores] = (await scores_of_policy(policy, problems(1, "one"), spec, [planning])).values()
    assert scores["planning/calls"] == 3.0 and scores["planning/over_use"] == 1.0


async def test_a_tool_without_parameters_is_called_without_arguments() -> None:
    @tool
    async def clock() -> str:
        """Read the time."""
        return "12:30"

    plan = '[{"tool": "clock", "subtask": "time", "inputs": [], "depends_on": []}]'
    policy = Simulated([lambda visible: plan if len(visible.texts) < 3 else visible.texts[-1]])
    [problem] = problems(1, "one")
    timed = replace(problem, facts={**problem.facts, "answer": f"Results:\n1. 12:30\n{FINISH}"})
    spec = rules(OneStep(), clock)
    [scores] = (await scores_of_policy(policy, [timed], spec, [exact])).values()
    assert scores["exact"] == 1.0


def test_the_table_counts_unscored_episodes_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def played(experiment: object, policy: str, episodes: int, split: str) -> SimpleNamespace:
        names = ["a", "a", "b", "c"][:episodes]  # a team of two speakers, and two episodes
        scored = Scored("t", {"planning": 1.0, "planning/calls": 3.0}, (), 1.0)
        others = [replace(scored, rewards={"planning": 0.0, "planning/calls": 2.0})]
        others += [replace(scored, rewards={}, reward=Unscored("too late"))]
        return SimpleNamespace(
            episodes=[trajectory(turn([1], {2: 0.0}), episode=name) for name in names],
            scores=[scored, scored, *others][:episodes],
        )

    monkeypatch.setattr(evaluation, "play", played)
    experiment: Any = None
    assert evaluation.evaluate_plans(experiment, ["base"], 4) == [
        {"policy": "base", "episodes": 3, "unscored": 1, "planning": 0.5, "planning/calls": 2.5}
    ]


@pytest.mark.long
def test_the_table_of_policies_has_their_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    sizes = ["data.train=16", "data.validation=1", "data.test=4"]
    experiment = load_experiment("tptu", *sizes, store=str(tmp_path))
    [row] = evaluation.evaluate_plans(experiment, episodes=4)
    assert (row["policy"], row["episodes"], row["planning"]) == ("oracle", 4, 1.0)
    assert (row["planning/calls"], row["planning/over_use"]) == (1.0, 0.0)
