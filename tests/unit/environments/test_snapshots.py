"""Going back to an earlier state of an environment."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from agentfly_core.authoring.environment import Environment
from agentfly_core.authoring.tool import Tool
from agentfly_core.environments.interpreter import Interpreter
from agentfly_core.environments.workspace import Workspace
from agentfly_core.records.trajectory import Observation, Problem, ToolCall
from agentfly_core.tools import files

FACTS = {"files": {"a.txt": "1"}}
BEFORE = [(files.create_file, {"name": "b.txt", "text": "\ud800 2"})]
AFTER: list[tuple[Tool, dict[str, object]]] = [
    (files.edit_file, {"name": "a.txt", "old": "1", "new": "3"}),
    (files.undo_change, {}),
    (files.undo_change, {}),
    (files.list_files, {}),
    (files.undo_change, {}),
]


async def seen(
    environment: Environment, calls: Sequence[tuple[Tool, dict[str, object]]]
) -> list[tuple[Observation, str]]:
    """The answer and the new state of each call."""
    steps = []
    for tool, arguments in calls:
        answer = await tool.answer(ToolCall(tool.name, arguments), {type(environment): environment})
        steps.append((answer, environment.state_key()))
    return steps


async def test_a_restored_snapshot_gives_the_same_answers() -> None:
    problem = Problem("p", "?", FACTS)
    first, another = Workspace(), Workspace()
    for environment in (first, another):
        await environment.reset(problem)
    await seen(first, BEFORE)
    snapshot, state = await first.snapshot(), first.state_key()
    once = await seen(first, AFTER)
    for environment in (first, another):
        await environment.restore(snapshot)
        assert environment.state_key() == state
        assert await environment.snapshot() == snapshot
        assert await seen(environment, AFTER) == once
        await environment.close()


async def test_an_environment_without_snapshots_raises() -> None:
    message = "Interpreter cannot go back to an earlier state: it defines no snapshot"
    for going in (Interpreter().snapshot(), Interpreter().restore(b"")):
        with pytest.raises(NotImplementedError, match=message):
            await going
