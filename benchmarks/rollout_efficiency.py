"""Speed of a multi-turn rollout: its tokens/s, divided by those of the bare vLLM server.

    python -m benchmarks.rollout_efficiency [--model nano:calculator] [--cap 16] [--repeats 3]

The rollout plays episodes of four turns. Each turn has a reply of up to 48 tokens and a tool call
with a latency. At most `--cap` requests are in flight, four times as many episodes are open, and 16
times as many are played. Then the bare server answers the same requests, with the same number in
flight. Both ways take turns, and start with an empty prefix cache. The rates are those of the
steady state, which ends when the last episode, or request, begins. The rest, the drain, is reported
separately. Goal: a ratio of 0.9 with tools of 0 to 200 ms.
"""

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import httpx
from transformers import PreTrainedTokenizerBase

from agentfly_core.authoring.environment import Environment
from agentfly_core.authoring.tool import tool
from agentfly_core.inference.sampler import Request, SamplerSession
from agentfly_core.inference.templates.chatml import Hermes
from agentfly_core.inference.vllm_client import VLLM
from agentfly_core.records.trajectory import Ending, Message, Observation, Problem, Sampled
from agentfly_core.rollout.episode import Episode, RolloutSpec
from agentfly_core.rollout.pool import Limit
from agentfly_core.rollout.resources import ResourceManager
from agentfly_core.rollout.rules import EpisodeSpec
from agentfly_core.rollout.shard import collect
from benchmarks import harness

LATENCIES = (0.0, 0.05, 0.2)
TURNS, REPLY, OPEN, ROUNDS, LONGEST = 4, 48, 4, 4, 1024


class Seat(Environment):
    """An environment without state. Its number limits how many episodes are open."""

    async def reset(self, problem: Problem) -> None:
        """Do nothing, because the environment does not have a state."""


@tool
async def look_up(*, seat: Seat) -> str:
    """Look something up."""
    return "found"


@dataclass
class Recorded:
    """A sampler that records each request, and the time of its answer."""

    sampler: VLLM
    asked: list[tuple[Request, float]] = field(default_factory=list)
    answered: list[tuple[float, int]] = field(default_factory=list)

    def load(self, policy: Path, version: int, base: Path | None = None) -> None:
        """Load a policy into the wrapped sampler."""
        self.sampler.load(policy, version, base)

    def rest(self) -> None:
        """Let the wrapped sampler rest."""
        self.sampler.rest()

    @asynccontextmanager
    async def shard(self, episodes: int) -> AsyncIterator[SamplerSession]:
        """Yield a session of the wrapped sampler that records its requests."""
        async with self.sampler.shard(episodes) as session:
            yield _Noting(session, self)


@dataclass
class _Noting(SamplerSession):
    session: SamplerSession
    notes: Recorded

    async def sample(self, request: Request) -> Sampled:
        self.notes.asked.append((request, time.perf_counter()))
        sampled = await self.session.sample(request)
        self.notes.answered.append((time.perf_counter(), len(sampled.tokens)))
        return sampled

    def open(self) -> None:
        self.session.open()

    def close(self) -> None:
        self.session.close()

    def of(self, speaker: str) -> SamplerSession:
        return self.session.of(speaker)


@dataclass(frozen=True)
class Rate:
    """The speed of a rollout or of the bare server: `Rate(912.0, 0.1)`.

    `steady` is the number of tokens per second until the last episode or request begins. `drain` is
    the share of the time after that.
    """

    steady: float
    drain: float


def rate(begun: float, last_begun: float, answered: Sequence[tuple[float, int]]) -> Rate:
    """Compute the speed from recorded times.

    `begun` is the time of the first start, and `last_begun` of the last start of an episode or
    request. `answered` has the time and the number of tokens of each answer.
    """
    over = max(moment for moment, _ in answered)
    steady = sum(tokens for moment, tokens in answered if moment <= last_begun) / (
        last_begun - begun
    )
    return Rate(steady, (over - last_begun) / (over - begun))


def played(sampler: VLLM, spec: RolloutSpec, cap: int) -> tuple[Rate, list[Request]]:
    """Play a rollout. Return its speed and its requests to the server."""
    notes, begun = Recorded(sampler), time.perf_counter()
    chains = range(cap * OPEN * ROUNDS)
    episode_specs = [
        EpisodeSpec(Problem(f"p{i}", f"Look up {i}."), i, 1, "train", 1.0, i) for i in chains
    ]

    async def play() -> None:
        async with ResourceManager(spec.limits) as resources:
            await collect(episode_specs, spec, notes, lambda _: None, resources)

    asyncio.run(play())
    first_turns = [moment for request, moment in notes.asked if request.conversation.turn == 0]
    return rate(begun, max(first_turns), notes.answered), [request for request, _ in notes.asked]


def bare(sampler: VLLM, requests: Sequence[Request], cap: int) -> Rate:
    """Send the same requests to the server without a rollout, and return the speed.

    `cap` requests are in flight at the same time.
    """
    notes, begun, waiting = Recorded(sampler), time.perf_counter(), iter(requests)

    async def ask(session: SamplerSession) -> None:
        for request in waiting:
            await session.sample(request)

    async def ask_all() -> None:
        async with notes.shard(cap) as session, asyncio.TaskGroup() as group:
            for _ in range(cap):
                group.create_task(ask(session))

    asyncio.run(ask_all())
    return rate(begun, max(moment for _, moment in notes.asked), notes.answered)


def rules(tokenizer: PreTrainedTokenizerBase, latency: float, cap: int) -> RolloutSpec:
    """Return rules for episodes of four turns with a tool that takes `latency` seconds."""

    async def talk(episode: Episode) -> Ending:
        read: tuple[Message | Observation, ...] = episode.opening
        for turn in range(TURNS):
            await episode.reply(*read)
            with episode.timed("tools"):
                await asyncio.sleep(latency)
            read = (
                Observation(
                    "look_up", f"Round {turn}: nothing was found here, look somewhere else."
                ),
            )
        return Ending.MAX_TURNS

    limits: dict[type[Environment], Limit] = {Seat: Limit(cap * OPEN)}
    template = Hermes(tokenizer, show_tools=False)
    spec = harness.tool_loop_spec(template, [look_up], TURNS, limits)
    lengths = replace(spec, max_tokens=REPLY, max_observation_tokens=128, max_model_len=LONGEST)
    return replace(lengths, agent=talk)


def emptied(sampler: VLLM) -> None:
    """Empty the server's prefix cache."""
    transport = httpx.HTTPTransport(uds=sampler.service.address)
    with httpx.Client(transport=transport, base_url="http://vllm") as server:
        server.post("/reset_prefix_cache").raise_for_status()


def compared(
    sampler: VLLM, tokenizer: PreTrainedTokenizerBase, latency: float, cap: int
) -> tuple[Rate, Rate]:
    """Measure the speed of the rollout and of the bare server, for one latency of the tool."""
    emptied(sampler)
    ours, requests = played(sampler, rules(tokenizer, latency, cap), cap)
    emptied(sampler)
    server = bare(sampler, requests, cap)
    print(
        f"{1000 * latency:.0f} ms: rollout {ours.steady:.0f}, bare {server.steady:.0f} tokens/s",
        flush=True,
    )
    return ours, server


def row(latency: float, pairs: Sequence[tuple[Rate, Rate]]) -> list[str]:
    """Return the table row of a latency, with medians over the repeats."""
    ours = statistics.median(rollout.steady for rollout, _ in pairs)
    server = statistics.median(bare.steady for _, bare in pairs)
    ratio = statistics.median(rollout.steady / bare.steady for rollout, bare in pairs)
    drain = statistics.median(rollout.drain for rollout, _ in pairs)
    return [
        f"{1000 * latency:.0f} ms",
        f"{ours:.0f}",
        f"{server:.0f}",
        f"{ratio:.2f}",
        f"{drain:.0%}",
    ]


def main() -> None:
    """Measure all latencies, and print the table of medians."""
    options = harness.parser(__doc__, model="nano:calculator", cap=16, repeats=3).parse_args()
    cap, episodes = options.cap, options.cap * OPEN * ROUNDS
    with harness.served_model(options.model, cap, LONGEST) as (sampler, tokenizer):
        ways = {
            latency: partial(compared, sampler, tokenizer, latency, cap) for latency in LATENCIES
        }
        taken = harness.in_turns(ways, options.repeats)
    title = f"{options.model}, {cap} requests in flight, {cap * OPEN} of {episodes} episodes open"
    columns = ("tool", "rollout, tokens/s", "bare, tokens/s", "ratio", "drain")
    harness.show(columns, [row(*one) for one in taken.items()], title)


if __name__ == "__main__":
    main()
