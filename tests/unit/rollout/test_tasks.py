"""Episodes of several tasks in one shard: each sees its own tools, and leases its own
environments.
"""

from dataclasses import replace

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.authoring.environment import Environment
from agentfly_core.authoring.tool import tool
from agentfly_core.records.trajectory import Problem, of_task
from agentfly_core.testing.episodes import episode_specs, play_all, rollout_spec, scripted
from agentfly_core.tools.calculator import calculator

SUM = of_task(Problem("41+58", "41+58?"), "sums")
VISIT = of_task(Problem("1", "Enter."), "rooms")


class Room(Environment):
    entered: list[str] = []  # noqa: RUF012

    async def reset(self, problem: Problem) -> None:
        self.entered.append(problem.id)


@tool
async def enter(*, room: Room) -> str:
    """Enter."""
    return "It is dark."


async def test_an_episode_has_the_tools_and_environments_of_its_task() -> None:
    sums = rollout_spec(calculator, max_turns=1, limits={Room: 1})
    rooms = rollout_spec(enter, system="You visit.", limits={Room: 1})
    spec = replace(rooms, tasks={"sums": sums, "rooms": rooms})

    async def policy(conversation: Conversation) -> str:
        return "<enter>" if conversation.turn == 0 else "ok"

    Room.entered.clear()
    played, *_ = await play_all(episode_specs(SUM, VISIT, chains=3), spec, scripted(policy))
    assert Room.entered == ["rooms/1"] * 3, "in the one room there is, one after another"
    visits, additions = played[:3], played[3:]
    assert [one.ending for one in additions] == ["max_turns"] * 3
    assert {o.content for one in visits for o in one.observations} == {"It is dark."}
    assert {o.content for one in additions for o in one.observations} == {
        "There is no tool 'enter'. Known: calculator."
    }
    assert [m.content for m in visits[0].turns[0].read] == ["You visit.", "Enter."]
    assert [m.content for m in additions[0].turns[0].read] == ["41+58?"]
    groups = {one.problem.id: one.group for one in played}
    assert len(set(groups.values())) == 2
