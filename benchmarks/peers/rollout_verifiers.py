"""Rollouts of verifiers; prints a line when a rollout begins and when it ends.

`rollout_vs_verifiers.py` runs this script in a separate virtual environment, without this project.
The module has a taskset and a harness, which verifiers finds by the module's name. The harness
plays in the process. `vf.Harness.launch` allows this if the harness calls the model through
verifiers' interception server.
"""

import argparse
import asyncio
import json
import logging
import multiprocessing
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import verifiers.v1 as vf
from verifiers.v1.configs.client import EvalClientConfig, TrainClientConfig
from verifiers.v1.serve.client import EnvClient
from verifiers.v1.serve.pool import serve_env
from verifiers.v1.utils.loaders import load_environment, resolve_env_config

__all__ = ["InProcess", "Sums"]

AT_ONCE = 128
ADD = {
    "name": "add",
    "description": "Add two numbers.",
    "parameters": {
        "type": "object",
        "properties": {"first": {"type": "integer"}, "second": {"type": "integer"}},
        "required": ["first", "second"],
    },
}
Play = Callable[[vf.Task], Awaitable[Any]]


class SumsConfig(vf.TasksetConfig):
    """Settings of the taskset."""

    question: str = ""


class Sums(vf.Taskset[vf.Task[vf.TaskData], SumsConfig]):
    """A taskset that repeats one question."""

    INFINITE = True

    def load(self) -> Iterable[vf.Task[vf.TaskData]]:
        """Yield the task again and again."""
        while True:
            yield vf.Task(vf.TaskData(prompt=self.config.question), self.config.task)


def answer(call: dict[str, Any]) -> dict[str, Any]:
    """Return the message with the tool's answer to a call."""
    given = json.loads(call["function"]["arguments"])
    return {
        "role": "tool",
        "tool_call_id": call["id"],
        "content": str(given["first"] + given["second"]),
    }


class InProcess(vf.Harness[vf.HarnessConfig]):
    """A harness that runs the tool loop in the current process."""

    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: Any,
        trace: Any,
        runtime: Any,
        endpoint: str,
        secret: str,
        mcp_urls: Any,
        data: vf.TaskData,
    ) -> vf.ProgramResult:
        """Call the model and answer its tool calls, until a reply does not contain a tool call."""
        messages: list[dict[str, Any]] = [{"role": "user", "content": data.prompt}]
        body = {
            "model": ctx.model,
            "messages": messages,
            "tools": [{"type": "function", "function": ADD}],
        }
        async with aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {secret}"}, raise_for_status=True
        ) as session:
            while True:
                async with session.post(f"{endpoint}/chat/completions", json=body) as response:
                    reply = (await response.json())["choices"][0]["message"]
                messages.append(reply)
                if not reply.get("tool_calls"):
                    return vf.ProgramResult(0, "", "")
                messages += [answer(call) for call in reply["tool_calls"]]


def context(given: dict[str, Any]) -> vf.ModelContext:
    """Return verifiers' context of the model, which has the address of the endpoint.

    Depending on the settings, the client sends token ids as in training, or messages as in
    evaluation.
    """
    address = f"http://127.0.0.1:{given['port']}/v1"
    client = {
        "tokens": TrainClientConfig(
            base_url=address,
            renderer={"name": "qwen3"},
            renderer_model_name=given["model"],
            api_key_var="NO_KEY",
        ),
        "messages": EvalClientConfig(base_url=address, api_key_var="NO_KEY"),
    }[given["protocol"]]
    return vf.ModelContext(
        client=client, model="policy", sampling=vf.SamplingConfig(temperature=1.0, max_tokens=256)
    )


@asynccontextmanager
async def here(config: vf.EnvConfig, ctx: vf.ModelContext) -> AsyncIterator[Play]:
    """Yield a function that plays a task in this process, like verifiers' `vf-eval`.

    At most `AT_ONCE` tasks are played at the same time.
    """
    env, room = load_environment(config), asyncio.Semaphore(AT_ONCE)
    async with env.serving():
        yield lambda task: env.run_slot(env.slots(task)[0], ctx, room)


@asynccontextmanager
async def served(config: vf.EnvConfig, ctx: vf.ModelContext) -> AsyncIterator[Play]:
    """Yield a function that plays a task in a worker of verifiers' environment server.

    The server chooses the number of its workers.
    """
    spawning = multiprocessing.get_context("spawn")
    addresses, settings = (
        spawning.Queue(),
        {"config_data": config.model_dump(mode="json"), "max_workers": None},
    )
    server = spawning.Process(
        target=serve_env,
        kwargs={**settings, "address": "tcp://127.0.0.1:0", "address_queue": addresses},
    )
    server.start()
    try:
        client = EnvClient(await asyncio.to_thread(addresses.get))
        await client.wait_for_server_startup()
        yield lambda task: client.run(
            ctx.client, ctx.model, ctx.sampling, task.data.model_dump(mode="json")
        )
        await client.close()
    finally:
        server.terminate()
        await asyncio.to_thread(server.join)


async def play(tasks: Iterable[vf.Task], one: Play, given: dict[str, Any]) -> None:
    """Play tasks with the function `one`, and check the answers of the tools."""
    for episode in await asyncio.gather(*map(one, tasks)):
        (trace,) = episode.traces
        assert trace.num_turns == given["calls"] + 1, trace.model_dump_json(indent=1)
        answers = [
            message.content.strip()
            for message in trace.branches[-1].messages
            if message.role == "tool"
        ]
        assert answers == [given["answer"]] * given["calls"], answers


async def rollouts(given: dict[str, Any]) -> None:
    """Play a few tasks that are not measured. Then play the measured rollouts."""
    taskset = {"id": "rollout_verifiers", "question": given["question"]}
    agent = {"harness": given["harness"], "runtime": {"type": "subprocess"}}
    config = resolve_env_config({"taskset": taskset, "agent": agent})
    tasks = load_environment(config).taskset
    async with (served if given["served"] else here)(config, context(given)) as one:
        await play(tasks.take(2), one, given)
        for episodes in given["sizes"]:
            print(json.dumps({"begin": episodes}), flush=True)
            await play(tasks.take(episodes), one, given)
            print(json.dumps({"end": episodes}), flush=True)


def main() -> None:
    """Read the settings and play the rollouts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "settings",
        help="JSON: model, port, protocol, harness, served, question, answer, calls, sizes",
    )
    logging.basicConfig(level=logging.ERROR)
    asyncio.run(rollouts(json.loads(parser.parse_args().settings)))


if __name__ == "__main__":
    main()
