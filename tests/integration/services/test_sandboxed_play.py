"""`agentfly play` with a checkout's own program in the sandbox."""

import json
import sys

import pytest

from agentfly_core.recipes.openai_program import calculator_agent
from flows.__main__ import main
from tests.support.project import ROOT

pytestmark = [pytest.mark.service, pytest.mark.usefixtures("sandbox")]


def test_a_program_of_an_editable_installation_plays(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("AGENTFLY_SAMPLER", "transformers")
    monkeypatch.setenv("AGENTFLY_STORE", str(tmp_path))
    monkeypatch.setenv("AGENTFLY_PROGRAMS", "2")
    command = json.dumps([sys.executable, calculator_agent.__file__])
    agent = f"agent={{use: program, command: {command}, sandbox: true, max_turns: 4}}"
    # the model nano would learn its tokens from 512 further episodes
    words = [str(ROOT / "conf/openai-program.yaml"), agent, "model=nano:calculator"]
    assert main(["play", *words, "-n", "4", "--policy", "oracle"]) == 0
    out = capsys.readouterr().out
    assert "4 episodes of 4 problems: 4 no_tool_calls" in out
    assert "solved 100.0%" in out
