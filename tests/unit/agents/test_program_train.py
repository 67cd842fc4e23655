"""The setting `train` of programs: the trained speakers among those that the policy plays."""

import sys
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from agentfly_core.agents.program import ProgramAgent
from agentfly_core.experiment import checks
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.pipeline.workers.samplers import Samplers
from agentfly_core.rl.batch import pack
from agentfly_core.testing.episodes import (
    ADD,
    episode_specs,
    play_all,
    rollout_spec,
    saying,
    scripted,
)
from tests.support import experiments

PROGRAM = """
    import json, os, urllib.request

    for part in ("", "/writer", "/critic"):
        body = {"messages": [{"role": "user", "content": "1+1?"}]}
        url = os.environ["OPENAI_BASE_URL"] + part + "/chat/completions"
        urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode())).close()
    print("2")
"""
SPEAKERS = {"writer": {"path": "writer"}, "critic": {"path": "critic"}}


def experiment(folder: Path, train: list[str], **agent: Any) -> Experiment:
    """An experiment with a program of three speakers."""
    program = folder / "program.py"
    program.write_text(dedent(PROGRAM))
    command = [sys.executable, str(program)]
    settings = {"use": "program", "command": command, "speakers": SPEAKERS, "train": train}
    return experiments.experiment(folder, agent={**settings, **agent})


@pytest.mark.parametrize("train", [["writer"], ["program", "critic"], []])
async def test_only_the_named_speakers_have_trained_tokens(tmp_path, train):
    here = experiment(tmp_path, train)
    agent, frozen = here.whole.agent, Samplers(here, "").frozen(None)
    assert isinstance(agent, ProgramAgent)
    spec = replace(rollout_spec(agent=agent), frozen=frozen)
    played, *_ = await play_all(episode_specs(ADD), spec, scripted(saying("2", "3", "4")))
    trained = {played[number].agent for number in pack(played).trajectory.tolist()}
    assert {one.agent for one in played} == {"program", "writer", "critic"}
    assert trained == {*(train or ["program", "writer", "critic"])}


def test_an_unknown_name_in_train_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"no speaker 'writr'. .* Did you mean 'writer'"):
        checks.check(experiment(tmp_path, ["writr"]).settings)


def test_a_trained_speaker_cannot_be_frozen(tmp_path):
    settings = experiment(tmp_path, ["writer"], frozen={"writer": "endpoint:gpt"}).settings
    with pytest.raises(ValueError, match=r"agent\.train: .*endpoint:gpt"):
        checks.check(settings)
