"""EvoAgent with a simulated policy: its calls follow Algorithm 1, and evolved teams solve more."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache
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


Kind = tuple[Skills, int]
"""Skills of a child that answer a question or begin a chain, and the number of its other skills."""
Team = tuple[Skills, ...]
FIRST = frozenset(SKILLS)


def proposed(needed: Skills, known: Skills, parents: Team) -> dict[Kind, tuple[float, int]]:
    """The probability of each kind of new child, and how many sets of skills are of that kind."""
    chances, sets = defaultdict[Kind, float](float), defaultdict[Kind, set[Skills]](set)
    for parent, (pair, chance) in product(parents, mutations(needed, known).items()):
        if (child := parent | pair) not in parents:
            kind = (child & (needed | FIRST), len(child - needed - FIRST))
            chances[kind] += chance / len(parents)
            sets[kind].add(child)
    return {kind: (chance, len(sets[kind])) for kind, chance in chances.items()}


def selected(kinds: dict[Kind, tuple[float, int]], children: int) -> dict[tuple[Kind, ...], float]:
    """The probability of each choice of children from one proposal more; equal ones are rejected.

    All sets of a kind are equally likely.
    """
    choices: dict[tuple[Kind, ...], float] = {(): 1.0}
    for _ in range(children + 1):
        later = defaultdict[tuple[Kind, ...], float](float)
        for chosen, chance in choices.items():
            full = len(chosen) == children
            shares = {k: s * (1 - chosen.count(k) / n) for k, (s, n) in kinds.items() if not full}
            for kind, share in shares.items():
                later[tuple(sorted((*chosen, kind), key=str))] += chance * share
            later[chosen] += chance * (1 - sum(shares.values()))
        choices = later
    return choices


@cache
def team_solves(needed: Skills, known: Skills, parents: Team, size: int, generations: int) -> float:
    """The probability that a team of `size` answers all questions; without children it ends."""
    if known == needed or not (generations and parents):
        return float(known == needed)
    total = 0.0
    for chosen, chance in selected(proposed(needed, known, parents), size).items():
        team = tuple(sorted(((kept & needed) or FIRST for kept, _ in chosen), key=sorted))
        after = known.union(*team) & needed
        total += chance * team_solves(needed, after, team, size, generations - 1)
    return total


def refinement_solves(needed: Skills, answers: int) -> float:
    """The probability that the last answer is complete; each comes from the first agent."""
    states = {needed & FIRST: 1.0}
    for _ in range(answers):
        later = defaultdict[Skills, float](float)
        for known, chance in states.items():
            for pair, share in mutations(needed, known).items():
                later[needed & (FIRST | pair)] += chance * share
        states = later
    return states[needed]


def team_chance(size: int, generations: int) -> Callable[[Skills], float]:
    return lambda needed: team_solves(needed, needed & FIRST, (FIRST,), size, generations)


@pytest.mark.parametrize(
    ("agent", "chance"),
    [
        (Evolve(SKILLS), team_chance(1, 3)),
        (Evolve(SKILLS, children=3, proposals=4, generations=1), team_chance(3, 1)),
        pytest.param(
            Evolve(SKILLS, children=3, proposals=4, generations=3),
            team_chance(3, 3),
            marks=pytest.mark.long,
        ),
        (SelfRefine(SKILLS, budget=22), lambda needed: refinement_solves(needed, 10)),
    ],
    ids=["one child", "three children", "three children, three times", "self-refinement"],
)
async def test_success_equals_the_closed_form(
    agent: Evolve, chance: Callable[[Skills], float]
) -> None:
    drawn = problems(200)
    # all questions are alike, but the first agent can answer "reversal" alone
    with_first, without = (
        chance(frozenset({"reversal", "vowels", "order"})),
        chance(frozenset({"vowels", "order", "length"})),
    )
    chances = [with_first if "reversal" in one.id.split("-")[1:] else without for one in drawn]
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
