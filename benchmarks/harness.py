"""Shared parts of benchmarks: options, medians, tables, a served model, a learner, episodes."""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar

from rich.console import Console
from rich.table import Table
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from agentfly_core import testing
from agentfly_core.agents.tool_loop import tool_loop
from agentfly_core.authoring.chat_template import ChatTemplate
from agentfly_core.authoring.environment import Environment
from agentfly_core.authoring.tool import Tool
from agentfly_core.config.experiment import Settings, Update
from agentfly_core.config.parts import AlgorithmPart
from agentfly_core.config.site import Site
from agentfly_core.experiment.run_layout import RunLayout
from agentfly_core.experiment.run_policies import final_policy
from agentfly_core.inference import vllm_server
from agentfly_core.inference.vllm_client import VLLM
from agentfly_core.models.pretrained import materialise
from agentfly_core.records.parquet import write_scores, write_trajectories
from agentfly_core.records.trajectory import (
    Ending,
    Given,
    Message,
    Sampled,
    Scored,
    Trajectory,
    Turn,
)
from agentfly_core.rollout.episode import RolloutSpec
from agentfly_core.rollout.pool import Limit
from agentfly_core.runs.summary import Evaluation, Evaluations
from agentfly_core.store.store import Store
from agentfly_core.system.service import new_address, supervised
from agentfly_core.training import client
from agentfly_core.training.client import DeepSpeedLearner
from agentfly_core.training.job import UpdateJob
from flows.experiments import load_experiment

Default = int | float | str | list[int] | list[float] | list[str]
Way = TypeVar("Way")
Result = TypeVar("Result")


def parser(text: str | None, **defaults: Default) -> argparse.ArgumentParser:
    """Return a parser with a module's docstring as help and an option for each name and default.

    parser(__doc__, at_once=32, sizes=[32, 64])   # --at-once 16 --sizes 8 16
    """
    made = argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in defaults.items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(default, list):
            made.add_argument(flag, type=type(default[0]), nargs="+", default=default)
        else:
            made.add_argument(flag, type=type(default), default=default)
    return made


def in_turns(ways: Mapping[Way, Callable[[], Result]], repeats: int) -> dict[Way, list[Result]]:
    """Call each function of `ways` `repeats` times, and return the results of each.

    Before that, each function is called once as a warm-up. The functions take turns: a temporary
    slowdown of the machine affects all of them.
    """
    taken: dict[Way, list[Result]] = {name: [] for name in ways}
    for _ in range(repeats + 1):
        for name, run in ways.items():
            taken[name].append(run())
    return {name: results[1:] for name, results in taken.items()}


def medians(taken: Mapping[Way, Sequence[float]]) -> dict[Way, float]:
    """Return the median of the results of each way."""
    return {name: statistics.median(results) for name, results in taken.items()}


def show(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    title: str | None = None,
    note: str = "",
    width: int | None = None,
) -> None:
    """Print a table, and a note below it."""
    table = Table(*columns, title=title)
    for row in rows:
        table.add_row(*row)
    Console(width=width).print(table, *([note] if note else []))


def tokenizer_of(folder: Path) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a model directory."""
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
        folder, trust_remote_code=False
    )
    return tokenizer


@contextmanager
def nano_tokenizer() -> Iterator[PreTrainedTokenizerBase]:
    """Yield the tokenizer of the nano model, for scripted conversations."""
    with tempfile.TemporaryDirectory(prefix="agentfly-") as folder:
        materialise("nano:calculator", Path(folder), "float32")
        yield tokenizer_of(Path(folder))


def tool_loop_spec(
    template: ChatTemplate,
    tools: Sequence[Tool],
    max_turns: int,
    limits: Mapping[type[Environment], Limit],
) -> RolloutSpec:
    """Return rules for scripted episodes of the agent `tool_loop`.

    An episode executes tool calls until a reply contains none. Use `dataclasses.replace` to change
    further rules.
    """
    return RolloutSpec(
        template=template,
        tools=tuple(tools),
        rewards=(),
        agent=tool_loop,
        system="",
        max_turns=max_turns,
        max_tokens=256,
        max_observation_tokens=256,
        max_model_len=4096,
        deadline=600.0,
        limits=limits,
    )


@contextmanager
def vllm_sampler(
    settings: Settings, site: Site, model: Path, in_flight: int, logs: Path
) -> Iterator[VLLM]:
    """Start a vLLM server for a model directory during the block. Yield a sampler that uses it."""
    with vllm_server.served(
        model, settings.dtype, settings.agent, site, logs, "benchmark"
    ) as service:
        yield VLLM(service, settings.dtype, in_flight)


@contextmanager
def served_model(
    reference: str, in_flight: int, max_model_len: int
) -> Iterator[tuple[VLLM, PreTrainedTokenizerBase]]:
    """Start a vLLM server with a model during the block. Yield its sampler and the tokenizer.

    `reference` names the model, such as "nano:calculator". `in_flight` is the largest number of
    concurrent requests.
    """
    values = {
        "model": reference,
        "data": {"use": "agentfly_core.datasets.arithmetic:arithmetic", "train": 1, "test": 1},
        "agent": {"max_model_len": max_model_len},
        "rewards": {"a:b": 1.0},
        "steps": 1,
    }
    settings = Settings.model_validate(values)
    site = Site(sampler="vllm", concurrency=in_flight)
    with tempfile.TemporaryDirectory(prefix="agentfly-") as scratch:
        policy = Path(scratch) / "policy"
        policy.mkdir()
        materialise(reference, policy, "float32")
        with vllm_sampler(settings, site, policy, in_flight, Path(scratch)) as sampler:
            sampler.load(policy, 0)
            yield sampler, tokenizer_of(policy)


@contextmanager
def learner(site: Site, logs: Path) -> Iterator[DeepSpeedLearner]:
    """Start a DeepSpeed learner during the block, and yield a client for it."""
    address = new_address("learner")
    command, environment = client.launch(str(address), site)
    log = logs / "learner.log"
    with supervised("learner", command, environment, address, log, "benchmark") as service:
        yield DeepSpeedLearner(service)


def reply(tokens: Sequence[int], logprob: float) -> Sampled:
    """Return a reply of these tokens. Policy version 0 has sampled them.

    Each token has this log-probability.
    """
    return Sampled(tuple(tokens), (logprob,) * len(tokens), 0, "stop")


def trajectory(
    chain: int, group: str, turns: Sequence[tuple[Sequence[int], Sampled]]
) -> Trajectory:
    """Return a synthetic episode. Each of `turns` has the tokens of a prompt and a reply."""
    made = [
        Turn((), Given(tuple(read)), Message("assistant", ""), (sampled,))
        for read, sampled in turns
    ]
    ending = Ending.MAX_TURNS
    return testing.trajectory(*made, name=f"t{chain}", group=group, chain=chain, ending=ending)


def stored(folder: Path, played: Sequence[Trajectory], rewarded_every: int) -> tuple[Path, Path]:
    """Write episodes and rewards to two files in a folder, and return their paths.

    Every `rewarded_every`-th episode has the reward 1, all other episodes 0.
    """
    trajectories, scores = folder / "trajectories.parquet", folder / "scores.parquet"
    write_trajectories(trajectories, played)
    scored = [
        Scored(one.id, {}, (), float(index % rewarded_every == 0))
        for index, one in enumerate(played)
    ]
    write_scores(scores, scored)
    return trajectories, scores


def grpo_update(
    number: int, policy: Path, stored: tuple[Path, Path], update: Update, dtype: str = "float32"
) -> UpdateJob:
    """Make the job for a GRPO update with stored episodes.

    The first update has the number 0. All later updates continue from the state in the learner's
    memory.
    """
    trajectories, scores = stored
    return UpdateJob(
        start=f"step/{number}" if number else "fresh:model",
        end=f"step/{number + 1}",
        policy=str(policy),
        learner="in memory" if number else None,
        rollouts=(str(trajectories),),
        scores=str(scores),
        algorithm=AlgorithmPart(use="agentfly_core.algorithms.grpo:GRPO"),
        rewards={},
        update=update,
        batch=None,
        temperature=1.0,
        dtype=dtype,
        seed=number,
        reference=None,
    )


class Evaluated(NamedTuple):
    """The evaluations of a run on the test problems, before its first and after its last step."""

    before: Evaluation
    after: Evaluation


def trained(experiment: str, overrides: Sequence[str], run: str) -> Evaluated:
    """Train a run if it is not finished. Return the evaluations before and after training.

    Both evaluations include the datasets of the setting `evaluate.datasets`.
    """
    loaded = load_experiment(experiment, overrides, "local", "")
    command = [sys.executable, "-m", "flows", "train", experiment, *overrides, "--run", run]
    with _counting_cpu(loaded.store, run):
        subprocess.run(command, check=True, stdout=sys.stderr)
    start, data = loaded.store.read_json(RunLayout(run).start), loaded.dataset
    stored = Evaluations(loaded)
    policies = loaded.store.artifact(start["uri"]), final_policy(loaded.store, run)
    before, after = (
        stored.with_datasets(policy, stored.stored(policy, "test", data)) for policy in policies
    )
    return Evaluated(before, after)


def cpu_minutes(store: Store, run: str) -> str:
    """Return the CPU minutes that the function `trained` used for a run, as text.

    The minutes include earlier attempts, the learner, sandboxes, evaluations and the run's own
    Prefect server. Agents that are programs with the setting `preload` are not counted, because no
    process waits for them. If the run was not trained by this function, the text is "-".
    """
    spent = store.read_json(_cpu_file(run))
    return f"{spent['seconds'] / 60:.1f}" if spent else "-"


@contextmanager
def _counting_cpu(store: Store, run: str) -> Iterator[None]:
    """Measure the CPU time of child processes that end in the block, and add it to the run's file.

    If the run was already finished before, nothing is added.
    """
    finished, before = store.read_json(RunLayout(run).summary), sum(os.times()[2:4])
    try:
        yield
    finally:
        if not finished:
            earlier = (store.read_json(_cpu_file(run)) or {"seconds": 0.0})["seconds"]
            spent = sum(os.times()[2:4]) - before
            store.write_json(_cpu_file(run), {"seconds": earlier + spent})


def _cpu_file(run: str) -> str:
    return f"{RunLayout(run).uri}/cpu.json"


def evaluated(experiment: str, overrides: Sequence[str], run: str) -> Evaluation:
    """Evaluate a run's last policy on the test problems, with these settings.

    If the evaluation is already stored, it is only read.
    """
    command = [sys.executable, "-m", "flows", "evaluate", experiment, *overrides]
    subprocess.run([*command, "--policy", f"run:{run}"], check=True, stdout=sys.stderr)
    loaded = load_experiment(experiment, overrides, "local", "")
    policy = final_policy(loaded.store, run)
    return Evaluations(loaded).stored(policy, "test", loaded.dataset)
