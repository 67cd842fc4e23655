"""Model output cannot stop a run, and no model can choose to be unscored instead of wrong."""

import json
import subprocess
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from agentfly_core.authoring.environment import Environment
from agentfly_core.authoring.scoring import score
from agentfly_core.authoring.tool import Tool
from agentfly_core.environments.database import Database
from agentfly_core.environments.interpreter import Interpreter
from agentfly_core.environments.workspace import Workspace
from agentfly_core.inference.scripted import Scripted
from agentfly_core.inference.templates.chatml import Hermes
from agentfly_core.recipes.arpo.vault import Vault
from agentfly_core.recipes.babyai.environment import BabyAI
from agentfly_core.recipes.blueprint.environment import Plot
from agentfly_core.recipes.office.environment import Office
from agentfly_core.recipes.shop.environment import Shop
from agentfly_core.recipes.text_shop.environment import TextShop
from agentfly_core.recipes.textworld.environment import TextWorld
from agentfly_core.recipes.textworld.tools import do
from agentfly_core.recipes.tptu.dataset import office_plans
from agentfly_core.records.parquet import read_trajectories, write_trajectories
from agentfly_core.records.trajectory import Ending, Problem, Score, Trajectory
from agentfly_core.runs.episodes import Episodes, pieces, table
from agentfly_core.testing.episodes import episode_specs, play_all, rollout_spec, saying
from agentfly_core.tools.python import python
from tests.support.hostile_texts import TEXTS
from tests.support.project import ROOT
from tests.support.ready_made_parts import shipped_rewards, shipped_tools

(PLANNED,) = office_plans(seed=0, train=1, validation=0, test=0)["train"]
FACTS: dict[str, Any] = {
    **PLANNED.facts,
    "answer": "99",
    "answers": ["17", "99"],
    "options": ["17", "99"],
    "function": "add",
    "tests": [{"args": [2, 3], "expected": 5}],
    "seconds": 1,
    "products": {"a7": {"name": "red cup", "price": 3, "stock": 5}},
    "order": {"a7": 1},
    "catalogue": {"seed": 0, "products": 1000},
    "wish": {"category": "coat", "attributes": ["cotton"], "options": ["red"], "limit": 60},
    "database": "CREATE TABLE t (x)",
    "files": {"a.txt": "a"},
    "expected": {"a.txt": "b"},
    "check": {"files": {"t.sh": "false"}, "script": "t.sh", "by_exit_code": True, "seconds": 5.0},
    "level": "BabyAI-GoToRedBall-v0",
    "seed": 1,
    "mission": "go to the red ball",
    "world": {"seed": 0, "rooms": 2, "things": 1},
    "way": [],
    "seen": "-= Forgotten Cellar =-\nYou've entered a forgotten cellar.\nThere is an exit to the "
    "north. Don't worry, it is unblocked.\nThere is a metal latchkey on the floor.",
    "thing": "metal latchkey",
    "dataset": "chain_sum",
    "config": {},
    "lamp": "red",
    "parts": [["walls", "box brick 0 0 0 3 3 3"]],
    "handle": 3,
    "direction": "up",
    "shelf": 417,
    "kind": "linear",
    "leaderboard": {"forest": 1.5},
    "entry": repr({"question": "What is 41 + 58?", "answer": "99", "metadata": {}}),
}
PROBLEM = Problem("all", "Do everything.", FACTS)
LIMITS: dict[type[Environment], int] = dict.fromkeys(
    (BabyAI, Database, Interpreter, Office, Plot, Shop, TextShop, TextWorld, Vault, Workspace),
    1,
)
if find_spec("sklearn"):
    from agentfly_core.recipes.mle.environment import MLE

    LIMITS[MLE] = 1
READ = """
import resource
resource.setrlimit(resource.RLIMIT_CPU, (15, 15))
from tests.support.hostile_texts import LENGTHY
from agentfly_core.system.formats import strict_json, text as plaintext
from agentfly_core.runs import episodes
from agentfly_core.rewards.code_tests import program
from agentfly_core.inference.templates.chatml import hermes_calls
for text in LENGTHY.values():
    try:
        strict_json.parse(text)
    except ValueError:
        pass
    program(text), plaintext.clip(text, 4000), plaintext.without_thoughts(text)
    list(hermes_calls(text))
    episodes.lines(episodes.Piece("sampled", text), 120)
"""


@pytest.fixture(scope="module")
def tokenizer(nano: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(nano)


TOOLS: list[Tool] = [
    tool
    for tool in shipped_tools()
    if tool is not python  # `python_session` has its name
    and (tool is not do or find_spec("textworld"))  # which is not in the lists
]
REWARDS = shipped_rewards()


async def played(tokenizer: PreTrainedTokenizerBase, *replies: str) -> Trajectory:
    """Play and score an episode with every tool and reward."""
    template = Hermes(tokenizer)
    texts = [reply.encode(errors="replace").decode() for reply in replies]
    encode = partial(tokenizer.encode, add_special_tokens=False)
    sampler = Scripted(encode, template.stop_tokens[0], saying(*texts))
    room = {"max_tokens": 200_000, "max_model_len": 4_000_000, "max_observation_tokens": 400}
    rules = rollout_spec(
        *TOOLS, rewards=[r for r in REWARDS if r.needs], template=template, limits=LIMITS, **room
    )
    (trajectory,), *_ = await play_all(episode_specs(PROBLEM), rules, sampler)
    return trajectory


def calls(text: str) -> str:
    """Calls of every tool, with a text for every argument."""
    last = sorted(TOOLS, key=lambda tool: tool.ends_episode)
    requests = [
        {"name": t.name, "arguments": dict.fromkeys(t.schema.parameters["properties"], text)}
        for t in last
    ]
    return "\n".join(f"<tool_call>\n{json.dumps(call)}\n</tool_call>" for call in requests)


def stored(trajectory: Trajectory, folder: Path) -> Trajectory:
    """It as it was written and read again, and shown to people."""
    write_trajectories(folder / "t.parquet", [trajectory])
    (loaded,) = read_trajectories(folder / "t.parquet")
    assert loaded.turns == trajectory.turns
    read = partial(pieces, decode=str)
    table(Episodes("run:run@1", "run, step 1", ((loaded, None),), read))
    return loaded


@pytest.mark.usefixtures("sandbox")
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
async def test_every_reward_grades_every_answer(
    text: str, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    trajectory = stored(await played(tokenizer, text, ""), tmp_path)
    (scored,) = await score([trajectory], dict.fromkeys(REWARDS, 1.0))
    assert isinstance(scored.reward, float), scored
    assert scored.rewards.keys() >= {reward.name for reward in REWARDS}


@pytest.mark.usefixtures("sandbox")
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
async def test_no_tool_call_stops_an_episode(
    text: str, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    trajectory = stored(await played(tokenizer, calls(text), text, ""), tmp_path)
    assert trajectory.ending is not Ending.FAILED, trajectory.error
    assert isinstance(trajectory.observed["bought"], Score)


def test_no_text_of_a_model_takes_long_to_read() -> None:
    done = subprocess.run(
        [sys.executable, "-c", READ], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
