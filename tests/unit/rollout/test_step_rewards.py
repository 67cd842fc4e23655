"""Step rewards of tools: recorded by turn, and summed to the environment's return."""

from pathlib import Path

import pytest

from agentfly_core.agents.tool_loop import tool_loop
from agentfly_core.authoring.environment import Environment
from agentfly_core.authoring.scoring import score
from agentfly_core.authoring.tool import StepResult, tool
from agentfly_core.records.parquet import read_trajectories, write_trajectories
from agentfly_core.records.trajectory import Ending, Problem, Score, ToolCall, Trajectory
from agentfly_core.rewards.environment_return import environment_return
from agentfly_core.rl.batch import pack
from agentfly_core.rl.outcomes import outcomes
from agentfly_core.rollout.episode import Episode
from agentfly_core.testing.episodes import play, rollout_spec, score_of


class Vault(Environment):
    async def reset(self, problem: Problem) -> None:
        self.turned = 0

    def turn_dial(self, by: int) -> StepResult:
        """A verb that pays a quarter for each notch nearer to 2."""
        before, self.turned = self.turned, self.turned + by
        nearer = abs(2 - before) - abs(2 - self.turned)
        return StepResult(f"It is at {self.turned}.", reward=nearer / 4)


@tool
def dial(by: int, *, vault: Vault) -> StepResult:
    return vault.turn_dial(by)


@tool
def look(*, vault: Vault) -> str:
    return f"It is at {vault.turned}."


@tool(ends_episode=True)
def pull(*, vault: Vault) -> StepResult:
    return StepResult({"open": vault.turned == 2}, reward=float(vault.turned == 2))


@tool
def pay(amount: str) -> StepResult:
    return StepResult("Paid.", float(amount))


async def opened() -> Trajectory:
    return await play(["<dial by=3>", "<look>", "<dial by=-2><dial by=1><pull>"], dial, look, pull)


async def test_a_turns_reward_is_the_sum_of_its_calls_or_none() -> None:
    trajectory = await opened()
    assert [turn.reward for turn in trajectory.turns] == [0.25, None, 0.0 + 0.25 + 1.0]
    assert trajectory.ending is Ending.TERMINAL
    read = [observation.content for observation in trajectory.observations]
    assert read == ["It is at 3.", "It is at 3.", "It is at 1.", "It is at 2.", '{"open": true}']


async def test_the_return_of_the_environment_is_what_the_turns_were_given() -> None:
    found = await environment_return.score(await opened(), {})
    assert found == Score(1.5, per_turn=(0.25, 0.0, 1.25))
    untouched = await play(["Nothing."], dial)
    assert await environment_return.score(untouched, {}) == Score(0.0, per_turn=(0.0,))


async def test_each_step_is_paid_for_at_the_last_token_of_its_own_reply() -> None:
    trajectory = await opened()
    scored = await score([trajectory], {environment_return: 2.0})
    found = outcomes([trajectory], scored, {}, {"environment_return": 2.0}, pack([trajectory]))
    assert found.token_rewards.sum(dim=1).tolist() == [3.0]
    lengths = [len(turn.sampled[0].tokens) for turn in trajectory.turns]
    first, second = lengths[0], lengths[0] + lengths[1]
    assert found.token_rewards[0, [first - 1, second - 1, -1]].tolist() == [0.5, 0.0, 2.5]


async def test_what_was_given_is_stored_with_the_turns_alone(tmp_path: Path) -> None:
    trajectory, path = await opened(), tmp_path / "t.parquet"
    write_trajectories(path, [trajectory])
    (stored,) = read_trajectories(path)
    assert stored == trajectory
    assert [turn.reward for turn in stored.turns] == [0.25, None, 1.25]
    assert {one.reward for one in stored.observations} == {None}


async def test_an_agent_sees_what_each_call_was_given() -> None:
    seen: list[float | None] = []

    async def watching(episode: Episode) -> Ending:
        (answer,) = await episode.call(ToolCall("dial", {"by": 1}))
        seen.append(answer.reward)
        return await tool_loop(episode)

    spec = rollout_spec(dial, agent=watching)
    trajectory = await play(["<dial by=1>", "Open."], spec=spec)
    assert seen == [0.25]
    # rewards before the first reply belong to no reply
    assert [turn.reward for turn in trajectory.turns] == [0.25, None]


@pytest.mark.parametrize("amount", ["nan", "-inf", "1e16"])
async def test_a_step_reward_that_is_no_number_is_an_error(
    amount: str,
) -> None:
    trajectory = await play([f"<pay amount={amount}>", "Thanks."], pay)
    (told,) = trajectory.observations
    assert told.error and "as a step's reward, expected a finite number" in told.content
    assert [turn.reward for turn in trajectory.turns] == [None, None]
    assert (await score_of(trajectory, environment_return)).reward == 0.0
