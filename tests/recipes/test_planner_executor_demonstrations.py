"""Demonstrations of two speakers, played with the settings of the experiment."""

import pytest

from agentfly_core.records.trajectory import Ending, ToolCall
from tests.support.shipped_demonstrations import Played, scores

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cooperating(tmp_path_factory: pytest.TempPathFactory) -> Played:
    return Played("planner-executor", tmp_path_factory.mktemp("cooperating"))


async def test_unspoilt_demonstrations_are_all_right(cooperating: Played) -> None:
    assert await scores(await cooperating.episodes(0.0)) == {1.0}


async def test_spoilt_demonstrations_are_wrong_but_well_formed(cooperating: Played) -> None:
    episodes = await cooperating.episodes(1.0)
    assert await scores(episodes) == {0.0}
    for trajectory in (one for episode in episodes for one in episode):
        assert trajectory.ending is Ending.NO_TOOL_CALLS
        assert not any(observation.error for observation in trajectory.observations)


async def test_planner_and_executor_are_both_spoilt(cooperating: Played) -> None:
    async def first_steps(spoilt: float) -> list[list[str]]:
        """The first step of the planner and the expression of the executor, by problem."""
        steps = []
        for episode in await cooperating.episodes(spoilt):
            speakers = {one.agent: one.turns[0].reply for one in episode if one.turns}
            (call,) = speakers["executor"].calls
            assert isinstance(call, ToolCall)
            steps.append([speakers["planner"].content, str(call.arguments["expression"])])
        return steps

    pairs = [*zip(await first_steps(0.0), await first_steps(1.0), strict=True)]
    planner_wrong = [right[0] != spoilt[0] for right, spoilt in pairs]
    executor_wrong = [right[0] == spoilt[0] and right != spoilt for right, spoilt in pairs]
    assert sum(planner_wrong) >= 2 and sum(executor_wrong) >= 2


def test_calls_of_the_executor_are_few_tokens(
    cooperating: Played,
) -> None:
    call = '<tool_call>\n{"name": "calculator", "arguments": {"expression": "41+58"}}\n</tool_call>'
    assert len(cooperating.tokenizer.tokenize(call)) == 7
