"""What a slow tool costs: a rollout of 32 concurrent episodes with tools of 0, 0.1 and 0.5 s.

    .venv/bin/python benchmarks/tools.py [--episodes 32] [--turns 4] [--repeats 5]

The scripted sampler calls one tool a turn, so that what is measured is the rollout itself; the latencies take turns,
and the medians of all repeats are compared. `blocking` tools are ordinary functions that sleep in a thread.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from transformers import AutoTokenizer

from agentfly_core.agents.tool_loop import tool_loop
from agentfly_core.authoring.tool import Tool, tool
from agentfly_core.inference.scripted import Scripted
from agentfly_core.models.reference import materialise
from agentfly_core.records.trajectory import Problem
from agentfly_core.rollout.episode import EpisodeSpec
from agentfly_core.rollout.resources import ResourceManager
from agentfly_core.rollout.shard import collect
from agentfly_core.rollout.spec import RolloutSpec
from agentfly_core.templates.chatml import Hermes

LATENCIES = (0.0, 0.1, 0.5)
QUESTION = "Wait."


@tool
async def waiting(seconds: float) -> str:
    """Answer after a while.

    Args:
        seconds: how long that is
    """
    await asyncio.sleep(seconds)
    return "done"


@tool(name="waiting")
def blocking(seconds: float) -> str:
    """Answer after a while.

    Args:
        seconds: how long that is
    """
    time.sleep(seconds)
    return "done"


def replies(latency: float, turns: int) -> list[str]:
    """What the model says: a call a turn, and a last word."""
    call = json.dumps({"name": "waiting", "arguments": {"seconds": latency}})
    return [f"<tool_call>\n{call}\n</tool_call>"] * turns + ["done"]


def wall(tokenizer: Any, kind: Tool, latency: float, episodes: int, turns: int) -> float:
    """The seconds that a rollout of `episodes`, each of `turns` calls and a last word, takes."""
    said = replies(latency, turns)
    book = RolloutSpec(
        template=Hermes(tokenizer),
        tools=(kind,),
        rewards=(),
        agent=tool_loop,
        system="",
        max_turns=turns + 1,
        max_tokens=256,
        max_observation_tokens=256,
        max_model_len=4096,
        deadline=600.0,
        limits={},
    )
    sampler = Scripted(
        lambda text: tokenizer.encode(text, add_special_tokens=False),
        book.template.stop_tokens[0],
        lambda problem, chain, turn: said[turn],
    )
    one = EpisodeSpec(Problem("wait", QUESTION), 0, 1, "train", 1.0, 0)
    all_of_them, resources = [replace(one, chain=i) for i in range(episodes)], ResourceManager({})
    start = time.monotonic()
    played, *_ = asyncio.run(collect(all_of_them, book, sampler, lambda _: None, resources))
    assert all(len(trajectory.observations) == turns for trajectory in played)
    return time.monotonic() - start


def main() -> None:
    """Measure and print medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=32)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        materialise("nano:calculator", Path(folder), "float32")
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    table = Table("tool", "latency", "rollout", "a turn", "more than 0 s, a turn")
    for kind, label in ((waiting, "async"), (blocking, "blocking")):
        found: dict[float, list[float]] = {latency: [] for latency in LATENCIES}
        for latency in LATENCIES * (options.repeats + 1):
            found[latency].append(wall(tokenizer, kind, latency, options.episodes, options.turns))
        medians = {latency: statistics.median(times[1:]) for latency, times in found.items()}
        for latency, seconds in medians.items():
            more = (seconds - medians[0.0]) / options.turns
            table.add_row(
                label, f"{latency} s", f"{seconds:.2f} s", f"{seconds / options.turns:.3f} s", f"{more:.3f} s"
            )
    Console().print(table)


if __name__ == "__main__":
    main()
