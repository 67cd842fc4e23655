"""The programs of docs/how-to/bring-an-agent.md play, and its tables are those of the code."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from agentfly_core.agents.program import FunctionProgram
from agentfly_core.config.parts import AgentPart
from agentfly_core.experiment.task import agent_of
from agentfly_core.records.trajectory import Ending
from agentfly_core.rollout.episode import Agent
from agentfly_core.testing.episodes import (
    ADD,
    episode_specs,
    play_all,
    rollout_spec,
    saying,
    scripted,
)
from agentfly_core.testing.letters import as_letters, loss_mask
from docs.field_table import table
from tests.support.project import ROOT

PAGE = (ROOT / "docs/how-to/bring-an-agent.md").read_text()
PROGRAM, FUNCTION, *_ = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
SETTINGS = [yaml.safe_load(b)["agent"] for b in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]


def test_the_table_of_fields_is_made_from_the_code():
    assert table() in PAGE


@pytest.mark.parametrize("settings", SETTINGS)
def test_the_settings_are_valid(settings):
    agent_of(AgentPart.model_validate(settings))


async def played_by(agent: Agent) -> None:
    spec = rollout_spec(agent=agent)
    (trajectory, *_), *_ = await play_all(episode_specs(ADD), spec, scripted(saying("99")))
    assert (trajectory.ending, trajectory.answer) == (Ending.NO_TOOL_CALLS, "99")
    assert as_letters(trajectory) == "^u41+58?$^a99$"
    assert loss_mask(trajectory) == "...........xxx"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_agent.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")


async def test_the_program_plays(folder):
    await played_by(agent_of(AgentPart.model_validate(SETTINGS[0])))


async def test_the_function_plays():
    names: dict[str, Any] = {}
    module = compile(f"from openai import OpenAI\n{FUNCTION}", "my_module.py", "exec")
    exec(module, names)
    await played_by(FunctionProgram(names["solve"]))
