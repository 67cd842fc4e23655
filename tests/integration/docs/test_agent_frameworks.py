"""The agents of frameworks in docs/how-to/bring-an-agent.md play, each in its own environment."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from agentfly_core.agents.program import ProgramAgent
from agentfly_core.records.trajectory import Ending, ToolCall, Trajectory
from agentfly_core.rewards.exact import exact
from agentfly_core.runs.metrics import history_rewrites
from agentfly_core.system.formats import hashing
from agentfly_core.testing.episodes import (
    ADD,
    episode_specs,
    play_all,
    rollout_spec,
    saying,
    score_of,
    scripted,
)
from agentfly_core.testing.letters import as_letters, call_text, loss_mask
from benchmarks.peers.virtualenvs import python_of
from tests.support.project import ROOT

pytestmark = pytest.mark.long
PAGE = (ROOT / "docs/how-to/bring-an-agent.md").read_text()
PROGRAMS = dict(re.findall(r"^([\w-]+):\n\n```python\n(.*?)```", PAGE, re.DOTALL | re.MULTILINE))
PINS = ROOT / "requirements/agents.txt"
PACKAGES = {
    "smolagents": ["smolagents[openai]"],
    "openai-agents": ["openai-agents"],
    "langgraph": ["langgraph", "langchain-openai"],
}
CALL = call_text(ToolCall("add", {"first": 41, "second": 58}))
SMOLAGENTS_STOP = ("Observation:", "Calling tools:")


@pytest.fixture
def agent(tmp_path: Path) -> Callable[[str], ProgramAgent]:
    """The page's program for a framework, whose environment is made once for these versions."""

    def program(framework: str) -> ProgramAgent:
        script = tmp_path / "my_agent.py"
        script.write_text(PROGRAMS[framework])
        return ProgramAgent((str(interpreter(framework)), str(script)))

    return program


def interpreter(framework: str) -> Path:
    name = f"{framework}-{hashing.digest(PINS.read_text())[:12]}"
    try:
        return python_of(name, "-c", str(PINS), *PACKAGES[framework])
    except subprocess.CalledProcessError as error:
        if "(from versions: none)" in error.stderr:
            pytest.skip(f"No package registry can be reached: {error.stderr[-500:]}")
        raise


async def played(agent: ProgramAgent, *replies: str, stop: tuple[str, ...] = ()) -> Trajectory:
    spec = rollout_spec(agent=agent, max_tokens=1000, max_model_len=100_000, stop=stop)
    (trajectory, *_), *_ = await play_all(episode_specs(ADD), spec, scripted(saying(*replies)))
    assert (trajectory.error, trajectory.answer) == (None, "99")
    assert trajectory.ending is Ending.NO_TOOL_CALLS
    assert (await score_of(trajectory, exact)).reward == 1.0
    return trajectory


@pytest.mark.parametrize("framework", ["openai-agents", "langgraph"])
async def test_each_reply_of_a_framework_continues_the_one_before(framework, agent):
    trajectory = await played(agent(framework), CALL, "99")
    assert as_letters(trajectory) == f"^u41+58?$^a{CALL}$^t99$^a99$"
    assert loss_mask(trajectory) == "." * 11 + "x" * len(f"{CALL}$") + "." * 7 + "xxx"
    assert set(history_rewrites([trajectory]).values()) == {0.0}


async def test_smolagents_writes_its_calls_as_texts_which_are_counted(agent):
    last = call_text(ToolCall("final_answer", {"answer": "99"}))
    trajectory = await played(agent("smolagents"), CALL, last, stop=SMOLAGENTS_STOP)
    rewrites = history_rewrites([trajectory])
    assert (rewrites["history_rewrites"], rewrites["history_rewrites/text"]) == (0.5, 0.5)
    sampled = [span.tokens for turn in trajectory.turns for span in turn.sampled if span.trained]
    assert [len(tokens) for tokens in sampled] == [len(CALL) + 1, len(last) + 1]
    assert loss_mask(trajectory).count("x") == len(CALL) + len(last) + 2
