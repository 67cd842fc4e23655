"""Rows of programs behind the gateway, compared with what a proxy in front of vLLM recorded."""

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import psutil
import pytest

from agentfly_core.agents.program import FunctionProgram, ProgramAgent
from agentfly_core.config.experiment import Settings
from agentfly_core.config.site import Site
from agentfly_core.inference.templates.chatml import Hermes
from agentfly_core.inference.vllm_client import VLLM
from agentfly_core.inference.vllm_server import launch
from agentfly_core.models.model_config import tokenizer
from agentfly_core.records.trajectory import Ending, Problem, Trajectory
from agentfly_core.rollout.episode import Agent, Episode
from agentfly_core.system.service import Service, ServiceLost, supervised
from agentfly_core.system.supervisor import ChildState
from agentfly_core.testing.episodes import episode_specs, play_all, rollout_spec
from tests.support.recorded_rows import Generated, rows
from tests.support.recording_proxy import recording

EXPERIMENT = Settings.model_validate(
    {
        "model": "nano:calculator",
        "data": {"use": "agentfly_core.datasets.arithmetic:arithmetic", "train": 1, "test": 1},
        "agent": {"max_model_len": 512},
        "rewards": {"agentfly_core.rewards.exact:exact": 1.0},
        "steps": 1,
    }
)
SITE = Site(sampler="vllm", vllm_memory_gib=0.25, concurrency=32)
AT_ONCE = 16
PROGRAM = """
import json, sys
from openai import OpenAI

problem = json.loads(sys.stdin.readline())
client, messages = OpenAI(), [{"role": "user", "content": problem["prompt"]}]
for number in range(3):
    completion = client.chat.completions.create(model="any", messages=messages, logprobs=True)
    messages += [completion.choices[0].message, {"role": "user", "content": f"{number}?"}]
print("99")
"""


@pytest.fixture
def server(nano: Path, service_address: Callable[[str], Path], tmp_path: Path) -> Iterator[VLLM]:
    address = service_address("vllm")
    command, environment = launch(address, nano, "float32", EXPERIMENT.agent, SITE)
    log = tmp_path / "vllm.log"
    with supervised("vllm", command, environment, address, log, "test-gateway") as service:
        yield VLLM(service, "float32", SITE.concurrency)


@pytest.fixture
def command(tmp_path: Path) -> tuple[str, str]:
    (tmp_path / "program.py").write_text(PROGRAM)
    return sys.executable, str(tmp_path / "program.py")


def two_threads(problem: Problem, base_url: str) -> str:
    """Two conversations at the same time, one of which branches."""
    client = openai.OpenAI(base_url=base_url, api_key="none")

    def thread(name: str) -> None:
        messages: list[Any] = [{"role": "user", "content": f"{problem.prompt} {name}"}]
        for number in range(2):
            completion = client.chat.completions.create(model="any", messages=messages, n=2)
            text = completion.choices[number].message.content
            messages.append({"role": "assistant", "content": f" {text}\n"})
            messages.append({"role": "user", "content": f"{number}?"})

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(thread, ("left", "right")))
    return "99"


def kill_child(address: str) -> None:
    state = ChildState.read(address)
    assert state
    for child in psutil.Process(state.keeper).children():
        child.kill()


def played(agent: Agent, problems: Sequence[Problem], sampler: VLLM) -> list[Trajectory]:
    spec = rollout_spec(
        agent=agent,
        template=Hermes(tokenizer("nano:calculator")),
        max_turns=8,
        max_tokens=12,
        max_model_len=512,
        deadline=3600.0,
    )
    trajectories = []
    for first in range(0, len(problems), AT_ONCE):
        some = episode_specs(*problems[first : first + AT_ONCE])
        trajectories += asyncio.run(play_all(some, spec, sampler))[0]
    return trajectories


def assert_no_cross_talk(trajectories: Sequence[Trajectory]) -> None:
    text = tokenizer("nano:calculator")
    for one in trajectories:
        assert all(one.problem.prompt in text.decode(prompt) for prompt, *_ in rows(one))


@pytest.mark.long
def test_rows_are_what_vllm_generated(
    server: VLLM, nano: Path, command: tuple[str, str], service_address: Callable[[str], Path]
) -> None:
    problems = [Problem(f"p{n}", f"nonce {n * 7919 % 10007}?") for n in range(200)]
    server.load(nano, 1)
    address = service_address("proxy")
    with recording(address, server.service.address) as proxy:
        sampler = VLLM(Service("vllm", str(address)), "float32", SITE.concurrency)
        trajectories = played(ProgramAgent(command), problems[:48], sampler)
        trajectories += played(FunctionProgram(two_threads), problems[48:], sampler)
    assert [one.error for one in trajectories if one.error] == []
    assert Counter(row for one in trajectories for row in rows(one)) == proxy.generated
    assert proxy.generated.total() == 48 * 3 + 152 * 8
    assert all(span.trained for one in trajectories for t in one.turns for span in t.sampled)
    assert_no_cross_talk(trajectories)


def test_injected_faults_lose_and_double_nothing(
    server: VLLM, nano: Path, service_address: Callable[[str], Path]
) -> None:
    problems = [Problem(f"p{n}", f"nonce {n}?") for n in range(16)]
    server.load(nano, 1)
    address = service_address("proxy")
    with recording(address, server.service.address, faults=0.2) as proxy:
        sampler = VLLM(Service("vllm", str(address)), "float32", SITE.concurrency)
        trajectories = played(FunctionProgram(two_threads), problems, sampler)
    assert proxy.injected[429] and proxy.injected[500]
    assert [one.error for one in trajectories if one.error] == []
    assert Counter(row for one in trajectories for row in rows(one)) == proxy.generated
    assert proxy.generated.total() == 16 * 8


@pytest.mark.long
def test_a_restarted_sampler_loses_and_doubles_nothing(
    server: VLLM, nano: Path, service_address: Callable[[str], Path]
) -> None:
    problems = [Problem(f"p{n}", f"nonce {n}?") for n in range(16)]
    server.load(nano, 1)
    address = service_address("proxy")
    with recording(address, server.service.address) as proxy:
        sampler = VLLM(Service("vllm", str(address)), "float32", SITE.concurrency)

        def deadly(problem: Problem, base_url: str) -> str:
            if problem == problems[8]:
                kill_child(server.service.address)
            return two_threads(problem, base_url)

        played(FunctionProgram(deadly), problems[:8], sampler)
        with pytest.raises(ServiceLost):
            played(FunctionProgram(deadly), problems[8:], sampler)
        before = Counter(proxy.generated)
        server.load(nano, 1)
        trajectories = played(FunctionProgram(two_threads), problems, sampler)
    assert before.total() >= 8 * 8
    assert [one.error for one in trajectories if one.error] == []
    assert Counter(row for one in trajectories for row in rows(one)) == proxy.generated - before
    assert (proxy.generated - before).total() == 16 * 8


@pytest.mark.long
def test_faults_and_a_restart_cost_200_processes_nothing(
    server: VLLM, nano: Path, command: tuple[str, str], service_address: Callable[[str], Path]
) -> None:
    problems = [Problem(f"p{n}", f"nonce {n * 7919 % 10007}?") for n in range(200)]
    program, deadly = ProgramAgent(command, preload=("openai",)), {problems[100].id}

    async def agent(episode: Episode) -> Ending:
        if episode.problem.id in deadly:
            deadly.remove(episode.problem.id)
            kill_child(server.service.address)
        return await program(episode)

    server.load(nano, 1)
    address, trajectories = service_address("proxy"), list[Trajectory]()
    discarded = Counter[Generated]()
    with recording(address, server.service.address, faults=0.2) as proxy:
        sampler = VLLM(Service("vllm", str(address)), "float32", SITE.concurrency)
        for first in range(0, len(problems), AT_ONCE):
            shard, before = problems[first : first + AT_ONCE], Counter(proxy.generated)
            try:
                trajectories += played(agent, shard, sampler)
            except ServiceLost:
                server.load(nano, 1)
                discarded += proxy.generated - before
                trajectories += played(agent, shard, sampler)
    assert not deadly
    assert proxy.injected[429] > 20 and proxy.injected[500] > 20
    assert [one.error for one in trajectories if one.error] == []
    assert {one.problem.id for one in trajectories} == {problem.id for problem in problems}
    assert Counter(row for one in trajectories for row in rows(one)) == proxy.generated - discarded
    assert (proxy.generated - discarded).total() == 200 * 3
    assert_no_cross_talk(trajectories)
