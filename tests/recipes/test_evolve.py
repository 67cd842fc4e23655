"""EvoAgent with a simulated policy: its calls follow Algorithm 1, and evolved teams solve more."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import product
from statistics import NormalDist

import pytest

from agentfly_core.agents.tool_loop import tool_loop
from agentfly_core.recipes.evolve import dataset, operators
from agentfly_core.recipes.evolve.agents import Evolve, SelfRefine
from agentfly_core.recipes.evolve.demonstrations import INSIGHT, simulated
from agentfly_core.records.trajectory import Ending, Problem, Trajectory
from agentfly_core.rewards.exact import exact
from agentfly_core.rollout.episode import Episode
from agentfly_core.testing import (
    Simulated,
    Visible,
    loss_mask,
    problems_of,
    rollout_spec,
    scores_of_policy,
)
from agentfly_core.testing.episodes import episode_specs, play_all, scripted
from tests.support.paired_outcomes import sign_test

SKILLS = ["reversal"]
WORDS = {
    operators.CROSSOVER: "crossover",
    operators.MUTATION: "mutation",
    operators.CHECK: "check",
    operators.UPDATE: "update",
}


def replies(visible: Visible) -> str:
    return simulated(visible.texts, visible.draw)


def rejects(visible: Visible) -> str | None:
    return '{"keep": false, "reason": "It may keep all."}' if CHECKED in visible.texts[-1] else None


CHECKED = operators.CHECK


def problems(size: int) -> list[Problem]:
    made = problems_of(
        "agentfly_core.recipes.evolve.dataset:word_questions",
        seed=907,
        train=size,
        validation=1,
        test=1,
    )
    return made["train"]


async def played(agent: Evolve, drawn: Sequence[Problem], *skills) -> list[Trajectory]:
    spec = rollout_spec(
        agent=agent,
        system="You are the first agent. Your skills: reversal.",
        max_tokens=10_000,
        max_model_len=100_000,
    )
    sampler = scripted(Simulated([*skills, replies]))
    trajectories, *_ = await play_all(episode_specs(*drawn), spec, sampler)
    return trajectories


def calls(trajectories: Sequence[Trajectory]) -> list[str]:
    """The operations of an episode in the order of time: `["answer", "crossover", ...]`."""
    turns = sorted((turn.call, turn) for one in trajectories for turn in one.turns)
    texts = [turn.read[-1].content for _, turn in turns]
    return [next((w for mark, w in WORDS.items() if mark in text), "answer") for text in texts]


async def solved(agent: Evolve, drawn: Sequence[Problem]) -> list[bool]:
    spec = rollout_spec(
        agent=agent,
        system="You are the first agent. Your skills: reversal.",
        max_tokens=10_000,
        max_model_len=100_000,
    )
    policy = Simulated([replies])
    scores = await scores_of_policy(policy, drawn, spec, [exact])
    assert policy.facts_read == 0
    return [one["exact"] == 1.0 for one in scores.values()]


@pytest.mark.parametrize(("children", "generations"), product([1, 2, 3], [1, 3]))
async def test_the_calls_are_those_of_algorithm_1(children: int, generations: int) -> None:
    proposals = children + 1
    agent = Evolve(SKILLS, children=children, generations=generations, proposals=proposals)
    (problem,) = problems(1)
    expected, parents = ["answer"], 1
    for _ in range(generations):
        expected += ["crossover"] * parents + ["mutation"] * proposals + ["check"] * proposals
        expected += ["answer"] * children + ["update"]
        parents = children
    assert calls(await played(agent, [problem])) == expected


async def test_rejected_children_end_the_evolution() -> None:
    (problem,) = problems(1)
    trajectories = await played(Evolve(SKILLS, children=1, proposals=2), [problem], rejects)
    assert calls(trajectories) == ["answer", "crossover", *["mutation"] * 2, *["check"] * 2]


@pytest.mark.parametrize("budget", range(1, 50, 4))
async def test_the_budget_is_never_exceeded(budget: int) -> None:
    (problem,) = problems(1)
    for agent in (
        Evolve(SKILLS, children=3, proposals=4, budget=budget),
        SelfRefine(SKILLS, budget=budget),
    ):
        assert len(calls(await played(agent, [problem]))) <= budget


Skills = frozenset[str]


def mutations(needed: Skills, known: Skills) -> dict[Skills, float]:
    """The probability of each pair of new skills: half of them answer an open question."""
    open_, every = needed - known, sorted(dataset.SKILLS)
    share = INSIGHT if open_ else 0.0
    chance = {
        one: (1 - share) / len(every) + (share / len(open_) if one in open_ else 0.0)
        for one in every
    }
    pairs = defaultdict[Skills, float](float)
    for one, other in product(every, repeat=2):
        pairs[frozenset({one, other})] += chance[one] * chance[other]
    return pairs


def next_known(needed: Skills, known: Skills, agent: type[Evolve]) -> dict[Skills, float]:
    """The probability of each set of answered questions after one child.

    A team keeps its answers. If a child adds no skill, there is a second proposal, and then the
    evolution ends. SelfRefine proposes from the first agent, and keeps the last answer alone.
    """
    is_team, after = agent is Evolve, defaultdict[Skills, float](float)
    if is_team and known == needed:
        return {known: 1.0}
    parent = known if is_team and known else frozenset(SKILLS)
    pairs = mutations(needed, known)
    same = sum(chance for pair, chance in pairs.items() if pair <= parent)
    for pair, chance in pairs.items():
        if not is_team:
            after[needed & (parent | pair)] += chance
        elif not pair <= parent:
            after[known | needed & pair] += chance * (1 + same)
    return after


def solved_chance(needed: Skills, agent: type[Evolve], children: int) -> float:
    """The probability that all questions are answered after some children."""
    states = {needed & {*SKILLS}: 1.0}
    for _ in range(children):
        later = defaultdict[Skills, float](float)
        for known, chance in states.items():
            for after, share in next_known(needed, known, agent).items():
                later[after] += chance * share
        states = later
    return states[needed]


@pytest.mark.parametrize(("agent", "children"), [(Evolve(SKILLS), 3), (SelfRefine(SKILLS), 10)])
async def test_success_equals_the_closed_form(agent: Evolve, children: int) -> None:
    drawn = problems(200)
    agent.budget = 22
    needed = [frozenset(one.id.split("-")[1:]) for one in drawn]
    chances = [solved_chance(one, type(agent), children) for one in needed]
    reach = NormalDist().inv_cdf(0.995) * sum(one * (1 - one) for one in chances) ** 0.5
    assert abs(sum(await solved(agent, drawn)) - sum(chances)) <= reach


@pytest.mark.parametrize("children", [1, pytest.param(3, marks=pytest.mark.long)])
async def test_a_team_beats_self_refinement_at_equal_calls(children: int) -> None:
    drawn = problems(200)
    agent = Evolve(SKILLS, children=children, proposals=children + 1)
    spent = len(calls(await played(agent, drawn[:1])))
    team, alone = await solved(agent, drawn), await solved(SelfRefine(SKILLS, budget=spent), drawn)
    assert sum(team) >= sum(alone) + 40
    assert sign_test(team, alone) < 0.01


async def test_without_mutation_nothing_is_learned() -> None:
    drawn = problems(60)
    assert not any(await solved(Evolve(SKILLS, children=3, mutation=False), drawn))


async def repeated(agent: Evolve) -> float:
    """The share of agents with the skills of an earlier agent of their team."""
    episodes: dict[str, list[str]] = {}
    for one in await played(agent, problems(60)):
        if one.speaker.startswith("expert"):
            skills = one.turns[0].read[0].content.partition("skills: ")[2]
            episodes.setdefault(one.problem.id, ["reversal."]).append(",".join(sorted(skills)))
    agents = sum(len(team) - 1 for team in episodes.values())
    return 1 - sum(len({*team}) - 1 for team in episodes.values()) / agents


async def test_without_the_quality_check_agents_repeat() -> None:
    checked = await repeated(Evolve(SKILLS, children=3, proposals=4))
    assert (
        await repeated(Evolve(SKILLS, children=3, proposals=4, quality_check=False)) >= 2 * checked
    )


async def test_symbolic_operators_reply_to_updates_only() -> None:
    (problem,) = problems(1)
    agent = Evolve(SKILLS, children=2, generations=1, proposals=4, pool=[*dataset.SKILLS])
    assert calls(await played(agent, [problem])) == ["answer", "answer", "answer", "update"]


async def test_unreadable_replies_change_nothing() -> None:
    def garbles(visible: Visible) -> str | None:
        return "{oops" if operators.SPEC in visible.texts[-1] else None

    (problem,) = problems(1)
    trajectories = await played(Evolve(SKILLS), [problem], garbles)
    assert calls(trajectories) == ["answer", "crossover", "mutation", "mutation"]
    assert {one.ending for one in trajectories} == {Ending.NO_TOOL_CALLS}


async def drafts(episode: Episode) -> Ending:
    """An agent with a draft and an answer."""
    await tool_loop(episode)
    episode.answer((await episode.reply(*episode.opening)).content)
    return Ending.NO_TOOL_CALLS


async def test_any_agent_can_be_the_first_one() -> None:
    (problem,) = problems(1)
    agent = Evolve(SKILLS, f"{__name__}:drafts", generations=1, expert_turns=2)
    expected = ["answer"] * 2 + ["crossover", *["mutation"] * 2, *["check"] * 2]
    assert calls(await played(agent, [problem])) == [*expected, *["answer"] * 2, "update"]


async def test_every_speaker_has_trained_tokens() -> None:
    trajectories = await played(Evolve(SKILLS, children=2, proposals=3), problems(1))
    assert {one.speaker.partition("/")[0] for one in trajectories} == {
        "evolve",
        "evolver",
        "expert",
    }
    assert all("x" in loss_mask(one) for one in trajectories)
