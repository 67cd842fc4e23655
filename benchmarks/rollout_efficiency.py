"""How much of vLLM's speed a multi-turn rollout keeps: its tokens a second over those of the bare server.

    .venv/bin/python benchmarks/rollout_efficiency.py [--model nano:calculator] [--cap 16] [--repeats 3]

Episodes of four turns, each a reply of up to 48 tokens and a tool that takes its time, are played by the product's own
rollout against its own vLLM server: at most `--cap` requests in flight, four times as many episodes open, four times as
many again to play. Then the bare server answers the very same requests, as many in flight. Both ways take turns, with
an empty prefix cache each time. A steady state lasts until the last episode, or request, has begun; what comes after,
the drain, is told apart. Goal: 0.9 with tools of 0 to 200 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.table import Table
from transformers import AutoModelForCausalLM, AutoTokenizer

from agentfly_core.authoring.environment import Environment
from agentfly_core.authoring.tool import tool
from agentfly_core.config.experiment import Science
from agentfly_core.config.site import Site
from agentfly_core.inference import vllm_client
from agentfly_core.inference.sampler import Request, SamplerSession
from agentfly_core.inference.vllm_client import VLLM
from agentfly_core.models import probe
from agentfly_core.models.reference import materialise
from agentfly_core.records.trajectory import Ending, Observation, Problem, Sampled
from agentfly_core.rollout.episode import Episode, EpisodeSpec
from agentfly_core.rollout.pool import Limit
from agentfly_core.rollout.resources import ResourceManager
from agentfly_core.rollout.shard import collect
from agentfly_core.rollout.spec import RolloutSpec
from agentfly_core.system.service import new_address, supervised
from agentfly_core.templates.chatml import Hermes

LATENCIES = (0.0, 0.05, 0.2)
TURNS, REPLY, OPEN, ROUNDS, LONGEST = 4, 48, 4, 4, 1024


class Seat(Environment):
    """A place to play at; there are four times as many as requests may be in flight."""

    async def reset(self, problem: Problem) -> None:
        """Nothing stays from one episode to the next."""


@tool
async def look_up(*, seat: Seat) -> str:
    """Look something up."""
    return "found"


@dataclass
class Recorded:
    """A sampler that notes what it was asked, in the order of the answers, and when each answer came."""

    sampler: VLLM
    asked: list[tuple[Request, float]] = field(default_factory=list)
    answered: list[tuple[float, int]] = field(default_factory=list)

    def load(self, policy: Path, version: int) -> None:
        """As the sampler does."""
        self.sampler.load(policy, version)

    @asynccontextmanager
    async def shard(self, episodes: int) -> AsyncIterator[SamplerSession]:
        """Lend the sampler."""
        async with self.sampler.shard(episodes) as session:
            yield _Noting(session, self)


@dataclass
class _Noting:
    session: SamplerSession
    notes: Recorded

    async def sample(self, request: Request) -> Sampled:
        self.notes.asked.append((request, time.perf_counter()))
        sampled = await self.session.sample(request)
        self.notes.answered.append((time.perf_counter(), len(sampled.tokens)))
        return sampled

    def leave(self) -> None:
        self.session.leave()


@dataclass(frozen=True)
class Rate:
    """Tokens a second in the steady state, and the share of the time that is the drain: `Rate(912.0, 0.1)`."""

    steady: float
    drain: float


def rate(begun: float, last_begun: float, answered: Sequence[tuple[float, int]]) -> Rate:
    """From when it began, when the last episode or request did, and when how many tokens came."""
    over = max(moment for moment, _ in answered)
    steady = sum(tokens for moment, tokens in answered if moment <= last_begun) / (last_begun - begun)
    return Rate(steady, (over - last_begun) / (over - begun))


def played(sampler: VLLM, book: RolloutSpec, cap: int) -> tuple[Rate, list[Request]]:
    """The rollout's rate, and what it asked for."""
    notes, begun = Recorded(sampler), time.perf_counter()
    chains = range(cap * OPEN * ROUNDS)
    episode_specs = [EpisodeSpec(Problem(f"p{i}", f"Look up {i}."), i, 1, "train", 1.0, i) for i in chains]

    async def play() -> None:
        async with ResourceManager(book.limits) as resources:
            await collect(episode_specs, book, notes, lambda _: None, resources)

    asyncio.run(play())
    first_turns = [moment for request, moment in notes.asked if request.order[2] == 0]
    return rate(begun, max(first_turns), notes.answered), [request for request, _ in notes.asked]


def bare(sampler: VLLM, requests: Sequence[Request], cap: int) -> Rate:
    """The server's rate for the same requests, as many of them in flight."""
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


def rules(tokenizer: Any, latency: float, cap: int) -> RolloutSpec:
    """Episodes of four turns whose tools take `latency` seconds, whatever the model says."""

    async def talk(episode: Episode) -> Ending:
        read: tuple[Any, ...] = episode.opening
        for turn in range(TURNS):
            await episode.reply(*read)
            with episode.timed("tools"):
                await asyncio.sleep(latency)
            read = (Observation("look_up", f"Round {turn}: nothing was found here, look somewhere else."),)
        return Ending.MAX_TURNS

    return RolloutSpec(
        template=Hermes(tokenizer, show_tools=False),
        tools=(look_up,),
        rewards=(),
        agent=talk,
        system="",
        max_turns=TURNS,
        max_tokens=REPLY,
        max_observation_tokens=128,
        max_model_len=LONGEST,
        deadline=600.0,
        limits={Seat: Limit(cap * OPEN)},
    )


@contextmanager
def served(model: str, cap: int, longest: int) -> Iterator[tuple[VLLM, Any]]:
    """A vLLM server with a model loaded, for contexts of at most `longest` tokens, and the tokenizer."""
    data = {"use": "agentfly_core.datasets.arithmetic:arithmetic", "train": 1, "test": 1}
    science = Science(model=model, data=data, agent={"max_model_len": longest}, rewards={"a:b": 1.0}, steps=1)
    site = Site(sampler="vllm", concurrency=cap)
    with tempfile.TemporaryDirectory(prefix="agentfly-") as scratch:
        policy = Path(scratch) / "policy"
        policy.mkdir()
        materialise(model, policy, "float32")
        loaded: Any = AutoModelForCausalLM.from_pretrained(policy, trust_remote_code=False)
        probe.write(policy, loaded.config.vocab_size, probe.of_model(loaded))
        address = new_address("vllm")
        command, environment = vllm_client.launch(address, policy, science, site)
        log = Path(scratch) / "vllm.log"
        with supervised("vllm", command, environment, address, log, "benchmark") as service:
            sampler = VLLM(service, "float32", cap)
            sampler.load(policy, 0)
            yield sampler, AutoTokenizer.from_pretrained(policy, trust_remote_code=False)


def emptied(sampler: VLLM) -> None:
    """Let the server forget its prefixes."""
    transport = httpx.HTTPTransport(uds=sampler.service.address)
    with httpx.Client(transport=transport, base_url="http://vllm") as server:
        server.post("/reset_prefix_cache").raise_for_status()


def main() -> None:
    """Measure and print medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="nano:calculator")
    parser.add_argument("--cap", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    found: dict[float, list[tuple[Rate, Rate]]] = {latency: [] for latency in LATENCIES}
    with served(options.model, options.cap, LONGEST) as (sampler, tokenizer):
        for latency in LATENCIES * (options.repeats + 1):
            emptied(sampler)
            ours, requests = played(sampler, rules(tokenizer, latency, options.cap), options.cap)
            emptied(sampler)
            server = bare(sampler, requests, options.cap)
            found[latency].append((ours, server))
            print(f"{1000 * latency:.0f} ms: rollout {ours.steady:.0f}, bare {server.steady:.0f} tokens/s", flush=True)
    episodes = options.cap * OPEN * ROUNDS
    title = f"{options.model}, {options.cap} requests in flight, {options.cap * OPEN} of {episodes} episodes open"
    table = Table("tool", "rollout, tokens/s", "bare, tokens/s", "ratio", "drain", title=title)
    for latency, pairs in found.items():
        counted = pairs[1:]
        rates = [statistics.median(pair[i].steady for pair in counted) for i in (0, 1)]
        ratio = statistics.median(mine.steady / its.steady for mine, its in counted)
        drain = statistics.median(mine.drain for mine, _ in counted)
        table.add_row(f"{1000 * latency:.0f} ms", *(f"{speed:.0f}" for speed in rates), f"{ratio:.2f}", f"{drain:.0%}")
    Console().print(table)


if __name__ == "__main__":
    main()
