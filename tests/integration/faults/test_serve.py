"""`agentfly serve`: a finished run answers OpenAI's client."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import openai
import pytest
from openai import OpenAI

from agentfly_core.system.supervisor import die_with_parent
from tests.support.killed_commands import Lives, Whole
from tests.support.project import ROOT
from tests.support.waiting import LIMIT, until

QUESTION = {"role": "user", "content": "41+58?"}


@contextmanager
def serving(folder: Path, sampler: str) -> Iterator[tuple[subprocess.Popen[str], OpenAI]]:
    """The process that serves the run `demo` of a folder, and a client of it."""
    output = folder / "served"
    with output.open("w") as file:
        words = ["serve", "demo", "--port", "0", "--store", str(folder)]
        process = subprocess.Popen(
            [sys.executable, "-m", "flows", *words],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), "AGENTFLY_SAMPLER": sampler},
            stdout=file,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=die_with_parent,
        )
    try:
        until(lambda: "OPENAI_API_KEY=" in output.read_text(), process)
        lines = [line.partition("=") for line in output.read_text().splitlines()]
        settings = {name.removeprefix("export OPENAI_"): value for name, _, value in lines}
        with OpenAI(base_url=settings["BASE_URL"], api_key=settings["API_KEY"]) as client:
            yield process, client
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("sampler", ["transformers", pytest.param("vllm", marks=pytest.mark.long)])
def test_a_run_is_served_until_it_is_interrupted(tmp_path: Path, whole: Whole, sampler: str):
    for folder in ("artifacts", "runs"):
        shutil.copytree(whole.folder / folder, tmp_path / folder)
    with serving(tmp_path, sampler) as (process, client):
        assert [model.id for model in client.models.list()] == ["run:demo"]
        create = client.chat.completions.create
        first = create(model="any", messages=[QUESTION])
        chunks = create(model="any", messages=[QUESTION], stream=True)
        assert [chunk.choices[0].finish_reason for chunk in chunks][-1]
        message = first.choices[0].message
        usage = [
            create(model="any", messages=[QUESTION, echo, {"role": "user", "content": "?"}]).usage
            for echo in (message, {**message.model_dump(), "content": message.content})
        ]
        assert first.usage and usage[0] and usage[1]
        assert usage[0].prompt_tokens == usage[1].prompt_tokens > first.usage.total_tokens
        with pytest.raises(openai.BadRequestError) as full:
            create(model="any", messages=[{"role": "user", "content": "1" * 200}])
        assert full.value.code == "context_length_exceeded"
        assert client.base_url.host == "127.0.0.1"
        port = client.base_url.port
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT) == 0
    assert (tmp_path / "served").read_text().endswith("Stopped.\n")
    with socket.socket() as other, pytest.raises(ConnectionRefusedError):
        other.connect(("127.0.0.1", port))
    assert not (tmp_path / "runs" / "plays").exists()


def test_unknown_runs_and_taken_ports_are_refused(tmp_path: Path, whole: Whole, lives: Lives):
    unknown = lives.run(tmp_path, "serve", "dmo", "--store", str(whole.folder))
    assert (unknown.code, "The run 'dmo' has published no policy" in unknown.printed) == (2, True)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        end = lives.run(tmp_path, "serve", "demo", "--port", port, "--store", str(whole.folder))
    assert (end.code, f"The port {port} cannot be used" in end.printed) == (2, True)
