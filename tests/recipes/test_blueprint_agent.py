"""The architect: its stages with scripts, its memory, and the effect of the memory."""

from collections.abc import Sequence
from dataclasses import replace
from math import sqrt
from pathlib import Path

import pytest

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.authoring.scoring import score
from agentfly_core.recipes.blueprint import tools
from agentfly_core.recipes.blueprint.agents import Architect
from agentfly_core.recipes.blueprint.demonstrations import interpreted
from agentfly_core.recipes.blueprint.environment import COMPLETE
from agentfly_core.recipes.blueprint.memory import NOTHING, Shelf, remember
from agentfly_core.recipes.blueprint.rewards import building
from agentfly_core.records.trajectory import Problem, Scored, ToolCall, Trajectory
from agentfly_core.testing import loss_mask, play, problems_of, rollout_spec
from agentfly_core.testing.episodes import episode_specs, play_all, scripted
from agentfly_core.testing.letters import call_text
from benchmarks.blueprint import expected, measured

SEED = 7121
TOOLS = (tools.submit_blueprint, tools.build, tools.inspect, tools.materials)
WRONG = "box stone 0 0 0 1 1 1"


def order(number: int = 0) -> Problem:
    use = "agentfly_core.recipes.blueprint.dataset:orders"
    return problems_of(use, seed=SEED, train=5, validation=1, test=1)["train"][number]


def gold(problem: Problem) -> str:
    return "\n".join(dict(problem.facts["parts"]).values())


async def played(
    replies: Sequence[str], problem: Problem, memory: Path, agent: Architect | None = None
) -> tuple[list[Trajectory], list[Scored], list[str]]:
    """Trajectories and scores of scripted replies, and all texts that the designer read."""
    left, read = iter(replies), list[str]()

    async def policy(conversation: Conversation) -> str:
        if conversation.speaker == "interpreter":
            return interpreted(conversation.messages[-1].content)
        read[:] = [message.content for message in conversation.messages]
        return next(left)

    spec = rollout_spec(
        *TOOLS,
        rewards=[building],
        agent=agent or Architect(),
        max_turns=9,
        max_tokens=10_000,
        max_model_len=100_000,
        max_observation_tokens=10_000,
    )
    specs = episode_specs(problem)
    all_, *_ = await play_all(specs, replace(spec, memory=memory), scripted(policy))
    trajectories = [one for one in all_ if one.turns]  # the main speaker has no replies
    return trajectories, list(await score(trajectories, {building: 1.0})), read


def of(speaker: str, trajectories: Sequence[Trajectory]) -> Trajectory:
    return next(one for one in trajectories if one.speaker == speaker)


async def test_the_designer_reflects_until_the_building_is_complete(tmp_path: Path) -> None:
    problem = order()
    replies = ["box butter 0 0 0 1 1 1", WRONG, gold(problem)]
    trajectories, scores, read = await played(replies, problem, tmp_path)
    designer = of("designer", trajectories)
    assert [turn.reply.content for turn in designer.turns] == replies
    assert "there is no block 'butter'" in read[-3] and "cells are wrong" in read[-1]
    assert designer.answered == gold(problem)
    assert COMPLETE in designer.closing[-1].content
    assert {one.rewards["building"] for one in scores} == {1.0}
    assert len(of("interpreter", trajectories).turns) == 1


async def test_the_designer_reflects_three_times_at_most(tmp_path: Path) -> None:
    trajectories, scores, _ = await played([WRONG] * 9, order(), tmp_path)
    assert len(of("designer", trajectories).turns) == 4
    assert 0 < scores[0].rewards["building"] < 0.5


async def test_the_designer_may_call_tools_before_it_draws(tmp_path: Path) -> None:
    calls = call_text(ToolCall("materials", {})) + call_text(ToolCall("recall", {"query": "room"}))
    trajectories, *_ = await played([calls, gold(order())], order(), tmp_path)
    first, second, *_ = of("designer", trajectories).observations
    assert first.content.startswith("All without limit") and second.content == NOTHING


async def test_without_stages_one_reply_is_built(tmp_path: Path) -> None:
    agent = Architect(interprets=False, recalls=False, reflections=0, instructions=False)
    (only,), (scored,), read = await played([gold(order())], order(), tmp_path, agent)
    assert only.speaker == "designer" and scored.reward == 1
    assert read == [order().prompt]


async def test_all_replies_of_both_speakers_are_trained(tmp_path: Path) -> None:
    trajectories, *_ = await played([WRONG, gold(order())], order(), tmp_path)
    assert {one.speaker for one in trajectories} == {"designer", "interpreter"}
    assert all("x" in loss_mask(one) for one in trajectories)


async def test_only_complete_buildings_are_remembered_and_recalled(tmp_path: Path) -> None:
    memories = [tmp_path / str(number) for number in range(4)]
    for memory in memories:
        memory.mkdir()
    rounds = [(order(0), [WRONG] * 4), (order(1), [gold(order(1))]), (order(3), [gold(order(3))])]
    for (problem, replies), before, after in zip(rounds, memories[:3], memories[1:], strict=True):
        remember(before, *(await played(replies, problem, before))[:2], 0, after)
    assert Shelf(memories[1]).rows == []
    rows = {row["id"]: row["blueprint"] for row in Shelf(memories[3]).rows}
    assert rows == {order(n).id: gold(order(n)) for n in (1, 3)}
    assert Shelf(memories[3]).recall("a tower") == f"{order(1).prompt}\n{gold(order(1))}"
    *_, read = await played([WRONG] * 4, order(3), memories[3])
    assert f"{order(3).prompt}\n{gold(order(3))}\n\n{order(3).prompt}" in read[1]


def test_equal_episodes_make_equal_memories(tmp_path: Path) -> None:
    assert Shelf(tmp_path).recall("anything") == NOTHING
    remember(tmp_path, [], [], 0, tmp_path)
    assert (tmp_path / "blueprints.jsonl").read_bytes() == b""


@pytest.mark.usefixtures("sandbox")
async def test_a_program_may_print_the_blueprint() -> None:
    code = "for z in range(3):\n    print('box stone', z, z, z, 8 - z, 8 - z, z)"
    calls = [
        ToolCall("submit_blueprint", {"blueprint": code, "code": True}),
        ToolCall("submit_blueprint", {"blueprint": "print(1 / 0)", "code": True}),
        ToolCall("build", {}),
    ]
    episode = await play([calls, "done"], *TOOLS, problem=order())
    submitted, failed, built = episode.observations
    assert submitted.content == "The blueprint has 155 stone."
    assert failed.error and "ZeroDivisionError" in failed.content
    assert built.content == "Built: 155 stone."


@pytest.mark.long
async def test_a_memory_helps_with_repeated_families_only() -> None:
    problems = 120
    shares = await measured(SEED, problems)
    for name, share in shares.items():
        closed = expected(*name)
        assert abs(share - closed) <= 2.576 * sqrt(closed * (1 - closed) / problems), name
    assert shares["repeated", "own"] - shares["repeated", "none"] >= 0.25
    assert abs(shares["disjoint", "own"] - shares["disjoint", "none"]) <= 0.03
