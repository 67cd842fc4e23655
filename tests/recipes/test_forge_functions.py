"""Functions that a model has written: sandboxed calls, bindings, files, and tools of a set."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from agentfly_core import load_experiment, train
from agentfly_core.authoring.tool import ToolError
from agentfly_core.config.parts import ToolPart
from agentfly_core.experiment.task import tools_of as tools_of_part
from agentfly_core.recipes.forge import function_sets
from agentfly_core.recipes.forge.actions import applied, parsed
from agentfly_core.recipes.forge.evaluation import forge
from agentfly_core.recipes.forge.function_sets import Function, call, functions, tools_of, write
from agentfly_core.records.parquet import EPISODES, read_trajectories
from agentfly_core.records.trajectory import ToolCall
from agentfly_core.sandbox import Limits
from agentfly_core.testing import play
from tests.support.project import ROOT

FUNCTIONS = "agentfly_core.recipes.forge:functions"


def made(name: str, body: str, **arguments: Any) -> Function:
    code = f"def {name}({', '.join(arguments)}):\n    {body}"
    return Function(name=name, description=f"Computes {name}.", arguments=arguments, code=code)


async def test_each_function_keeps_its_own_code_when_all_run_at_once() -> None:
    several = tuple(made(f"f{n}", f"return x * 100 + {n}", x="integer") for n in range(5))
    calls = [ToolCall(f"f{n}", {"x": n}) for n in range(5)]
    episode = await play([[*calls, ToolCall("f7", {"x": 7})], "done"], *tools_of(several))
    *results, missing = [one.content for one in episode.observations]
    assert results == [str(n * 100 + n) for n in range(5)]
    assert "f7" in missing and not missing.isdigit()
    gathered = await asyncio.gather(*(call(one, {"x": 1}) for one in several))
    assert gathered == [str(100 + n) for n in range(5)]


async def test_a_tool_has_the_schema_of_its_function() -> None:
    [tool] = tools_of((made("repeat", "return word * n", word="string", n="integer"),))
    parameters: Any = tool.schema.parameters
    assert (tool.schema.name, tool.schema.description) == ("repeat", "Computes repeat.")
    assert {name: one["type"] for name, one in parameters["properties"].items()} == {
        "word": "string",
        "n": "integer",
    }
    episode = await play([ToolCall("repeat", {"word": "ab", "n": 2}), "done"], tool)
    assert episode.observations[0].content == "abab"


@pytest.mark.parametrize(
    "body",
    [
        "open('{outside}', 'w').write('x')",
        "import os\n    while True: os.fork()",
        "import socket; socket.create_connection(('127.0.0.1', {port}), 1)",
        "while True: pass",
        "import no_such_package",
        "import os; os._exit(0)",
        "return [0] * 10**12",
    ],
)
async def test_hostile_code_fails_and_harms_nothing(
    body: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(function_sets, "LIMITS", Limits(wall=1.0, cpu=1, processes=8))
    outside, reached = tmp_path / "outside", list[object]()
    server = await asyncio.start_server(lambda *peer: reached.append(peer), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    hostile = made("hostile", body.replace("{outside}", str(outside)).replace("{port}", str(port)))
    async with server:
        with pytest.raises(ToolError, match="hostile failed"):
            await call(hostile, {})
    assert not outside.exists() and not reached


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def other():\n    return 1", "defines no function new"),
        ("def new(:", "SyntaxError"),
        ("import no_such_package\ndef new(): ...", "ModuleNotFoundError"),
    ],
)
async def test_code_that_defines_nothing_is_refused(code: str, message: str) -> None:
    action = {"action": "add", "function": made("new", "return 1").model_dump() | {"code": code}}
    with pytest.raises(ValueError, match=message):
        await applied(parsed(json.dumps(action)), ())


async def test_actions_change_one_function() -> None:
    old, new = made("one", "return 1"), made("one", "return 2")
    other = made("other", "return 3")
    revise = {"action": "revise", "function": new.model_dump()}
    assert await applied(parsed(f"I would {json.dumps(revise)}."), (old, other)) == (other, new)
    remove = parsed('{"action": "remove", "name": "one"}')
    assert await applied(remove, (old, other)) == (other,)
    with pytest.raises(ValueError, match="no function one"):
        await applied(remove, (other,))
    with pytest.raises(ValueError, match="a function one"):
        await applied(parsed(json.dumps({**revise, "action": "add"})), (old,))


def test_one_entry_gives_all_tools_of_a_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    digest = write((made("one", "return 1"), made("two", "return 2")), tmp_path / "functions")
    entry = {"use": FUNCTIONS, "digest": digest}
    assert [tool.name for tool in tools_of_part(ToolPart.model_validate(entry))] == ["one", "two"]
    with pytest.raises(ValueError, match=r"tools: .*no .*0000\.json"):
        tools_of_part(ToolPart.model_validate({**entry, "digest": "0000"}))
    file = tmp_path / "functions" / f"{digest}.json"
    file.write_text(file.read_text().replace("return 2", "return 3"))
    with pytest.raises(ValueError, match="was changed"):
        functions(digest)


def test_an_experiment_lists_a_set_of_functions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    digest = write((made("one", "return 1"), made("two", "return 2")), tmp_path)
    tools = json.dumps([{"use": FUNCTIONS, "digest": digest, "folder": str(tmp_path)}])
    experiment = load_experiment("quickstart", f"tools={tools}", store=str(tmp_path / "store"))
    assert [tool.name for tool in experiment.whole.tools] == ["one", "two"]
    with pytest.raises(ValueError, match=r"tools\.0\.digst: .*no such"):
        load_experiment("quickstart", f"tools={tools.replace('digest', 'digst')}")


@pytest.mark.long
def test_the_flow_leaves_a_set_that_can_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    sizes = ["data.train=5", "data.validation=1", "data.test=2", "rollout.problems=5", "steps=4"]
    nano = ["model=nano:calculator", "agent.max_tokens=8", "agent.max_model_len=2048"]
    experiment = load_experiment("forge", *sizes, *nano, store=str(tmp_path / "store"))
    [row] = forge(experiment, str(tmp_path / "functions"))
    assert (row["functions"], row["accepted"]) == (0, 1)
    assert functions(str(row["digest"]), str(tmp_path / "functions")) == []
    assert train(experiment)["steps"] == 4


@pytest.mark.long
def test_solver_and_optimizer_are_trained_in_an_update(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    sizes = ["data.train=5", "data.validation=1", "data.test=2", "rollout.problems=5", "steps=2"]
    nano = ["model=nano:calculator", "agent.max_tokens=8", "agent.max_model_len=2048"]
    experiment = load_experiment("forge", *sizes, *nano, "update={}", store=str(tmp_path))
    run = train(experiment)["run"]
    files = tmp_path.glob(f"runs/{run}/steps/*/rollout-*/{EPISODES}")
    trained = {
        one.speaker
        for file in files
        for one in read_trajectories(file)
        if any(one.trains(turn) for turn in one.turns)
    }
    assert trained == {"solver", "optimizer"}
