"""Cost of a slow tool: a rollout of 32 concurrent episodes with tools of 0, 0.1 and 0.5 s.

    python -m benchmarks.tools [--episodes 32] [--turns 4] [--repeats 5]

A scripted sampler calls one tool per turn, so only the rollout itself is measured. The latencies
take turns, and the table has medians of all repeats. `blocking` tools are ordinary functions that
sleep in a thread.
"""

import asyncio
import json
import time
from dataclasses import replace
from functools import partial

from transformers import PreTrainedTokenizerBase

from agentfly_core.authoring.tool import Tool, tool
from agentfly_core.inference.scripted import Scripted
from agentfly_core.inference.templates.chatml import Hermes
from agentfly_core.records.trajectory import Problem
from agentfly_core.rollout.resources import ResourceManager
from agentfly_core.rollout.rules import EpisodeSpec
from agentfly_core.rollout.shard import collect
from agentfly_core.testing.episodes import saying
from benchmarks import harness

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
    """Return the model's replies: a call in each turn, and a final reply without a call."""
    call = json.dumps({"name": "waiting", "arguments": {"seconds": latency}})
    return [f"<tool_call>\n{call}\n</tool_call>"] * turns + ["done"]


def wall(
    tokenizer: PreTrainedTokenizerBase, kind: Tool, latency: float, episodes: int, turns: int
) -> float:
    """Play a number of concurrent episodes, and return the seconds.

    Each episode has `turns` turns with a tool call, and a final reply.
    """
    scripted = replies(latency, turns)
    spec = harness.tool_loop_spec(Hermes(tokenizer), [kind], turns + 1, limits={})
    sampler = Scripted(
        lambda text: tokenizer.encode(text, add_special_tokens=False),
        spec.template.stop_tokens[0],
        saying(*scripted),
    )
    first = EpisodeSpec(Problem("wait", QUESTION), 0, 1, "train", 1.0, 0)
    specs = [replace(first, chain=chain) for chain in range(episodes)]
    start = time.monotonic()
    played, *_ = asyncio.run(collect(specs, spec, sampler, lambda _: None, ResourceManager({})))
    assert all(len(trajectory.observations) == turns for trajectory in played)
    return time.monotonic() - start


def main() -> None:
    """Measure all latencies for both kinds of tools, and print the table of medians."""
    options = harness.parser(__doc__, episodes=32, turns=4, repeats=5).parse_args()
    rows = []
    with harness.nano_tokenizer() as tokenizer:
        for kind, label in ((waiting, "async"), (blocking, "blocking")):
            size = options.episodes, options.turns
            ways = {
                latency: partial(wall, tokenizer, kind, latency, *size) for latency in LATENCIES
            }
            medians = harness.medians(harness.in_turns(ways, options.repeats))
            for latency, seconds in medians.items():
                a_turn, more = seconds / options.turns, (seconds - medians[0.0]) / options.turns
                rows.append(
                    [label, f"{latency} s", f"{seconds:.2f} s", f"{a_turn:.3f} s", f"{more:.3f} s"]
                )
    harness.show(("tool", "latency", "rollout", "a turn", "more than 0 s, a turn"), rows)


if __name__ == "__main__":
    main()
