"""Rollouts of this project; prints a line when a rollout begins and when it ends.

`rollout_vs_verifiers.py` runs this script.
"""

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from agentfly_core.agents.program import ProgramAgent
from agentfly_core.authoring.environment import Environment
from agentfly_core.authoring.event_loop import run
from agentfly_core.authoring.tool import tool
from agentfly_core.environments.interpreter import Interpreter
from agentfly_core.environments.workspace import Workspace
from agentfly_core.inference.templates.chatml import Hermes
from agentfly_core.inference.vllm_client import VLLM
from agentfly_core.records.trajectory import Problem
from agentfly_core.rollout.pool import Limit
from agentfly_core.rollout.resources import resources_for
from agentfly_core.rollout.rules import EpisodeSpec
from agentfly_core.rollout.shard import collect
from agentfly_core.system.service import Service
from agentfly_core.tools.python import python_session
from agentfly_core.tools.shell import shell
from benchmarks import harness


@tool
async def add(first: int, second: int) -> str:
    """Add two numbers.

    Args:
        first: the one
        second: the other
    """
    return str(first + second)


PROGRAM = sys.executable, str(Path(__file__).with_name("rollout_program.py"))
TOOLS = {"add": add, "python": python_session, "shell": shell}


def play(given: dict[str, Any], tokenizer: PreTrainedTokenizerBase, episodes: int) -> None:
    """Play a number of episodes concurrently, and check the answers of the tools."""
    limits: dict[type[Environment], Limit] = {
        Interpreter: Limit(episodes),
        Workspace: Limit(episodes),
    }
    template, kind = Hermes(tokenizer), TOOLS[given["tool"]]
    spec = harness.tool_loop_spec(template, [kind], max_turns=8, limits=limits)
    spec = replace(spec, max_model_len=2048, deadline=3600.0)
    if given["gateway"]:
        spec = replace(spec, agent=ProgramAgent(PROGRAM, preload=("openai",)), tools=())
    sampler = VLLM(Service("vllm", given["socket"]), "float32", episodes)
    problem = Problem("sum", given["question"])
    episode_specs = [
        EpisodeSpec(problem, chain, 1, "train", 1.0, chain) for chain in range(episodes)
    ]
    with resources_for(spec.limits) as here:
        played, *_ = run(collect(episode_specs, spec, sampler, lambda _: None, here))
    answers = [
        observation.content.strip()
        for trajectory in played
        for observation in trajectory.observations
    ]
    assert answers == [given["answer"]] * (episodes * given["calls"]), answers


def main() -> None:
    """Play a few episodes that are not measured. Then play the measured rollouts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "settings", help="JSON: model, socket, tool, gateway, question, answer, calls, sizes"
    )
    given = json.loads(parser.parse_args().settings)
    tokenizer = harness.tokenizer_of(Path(given["model"]))
    play(given, tokenizer, 2)
    for episodes in given["sizes"]:
        print(json.dumps({"begin": episodes}), flush=True)
        play(given, tokenizer, episodes)
        print(json.dumps({"end": episodes}), flush=True)


if __name__ == "__main__":
    main()
