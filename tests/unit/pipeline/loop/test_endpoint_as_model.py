"""Runs of a chat service: memory changes, weights do not exist."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentfly_core.experiment.memory import memory_folder, memory_of
from agentfly_core.experiment.run_layout import RunLayout
from agentfly_core.experiment.run_policies import policy_of
from agentfly_core.pipeline.loop.library import load_experiment, train
from agentfly_core.records.parquet import EPISODES, read_trajectories
from tests.support.capitals import EXPERIMENT
from tests.support.chat_service import HttpReply, completion, serving
from tests.support.remembering import READER, REMEMBER, notes_in

PLAYS = (
    "model=endpoint:sage",
    "warm_start=null",
    "tools=[]",
    "environments={}",
    f"agent.use={READER}",
    f"agent.remembers={REMEMBER}",
    "steps=2",
)
WITHOUT_WEIGHTS = (*PLAYS, "update=none")
WARM = 'warm_start={demonstrations: "tests.support.capitals:shown", settings: {spoilt: 1.0}}'


def knows_oslo(body: dict[str, Any], _: int) -> HttpReply:
    """Always the same answer, with the number of notes that the agent read."""
    return completion(f"Oslo, after {body['messages'][0]['content']}")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with an experiment."""
    (tmp_path / "atlas.yaml").write_text(EXPERIMENT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AGENTFLY_SAMPLER", "transformers")
    monkeypatch.setenv("AGENTFLY_WORKERS", "0")
    return tmp_path


def site(url: str, monkeypatch: pytest.MonkeyPatch, model: str = "wise") -> None:
    endpoint = {"url": url, "model": model, "attempts": 1}
    monkeypatch.setenv("AGENTFLY_ENDPOINTS", json.dumps({"sage": endpoint}))


def test_a_chat_service_plays_steps_that_change_its_memory(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(knows_oslo) as service:
        site(service.url, monkeypatch)
        experiment = load_experiment("atlas.yaml", *WITHOUT_WEIGHTS)
        summary = train(experiment, "mine")
        sent = len(service.asked)
        assert train(load_experiment("atlas.yaml", *WITHOUT_WEIGHTS), "mine") == summary
    assert len(service.asked) == sent
    store, layout = experiment.store, RunLayout("mine")
    for step in (1, 2):
        policy = policy_of(store, "mine", step)
        memory = memory_of(store, policy)
        assert memory and len(notes_in(memory_folder(store, memory))) == step
        rollout = store.open(store.artifact(layout.step(step).rollout(0)))
        replies = {one.answer for one in read_trajectories(rollout / EPISODES)}
        assert replies == {f"Oslo, after {step - 1}"}


@pytest.mark.parametrize("words", [PLAYS, (*WITHOUT_WEIGHTS, WARM)])
def test_a_chat_service_is_not_trained(
    words: tuple[str, ...], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site("http://127.0.0.1:1", monkeypatch)
    with pytest.raises(ValueError, match=r"model: got endpoint:sage\..*chat service"):
        train(load_experiment("atlas.yaml", *words), "mine")


def test_a_chat_service_gives_no_entropies_for_forks(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site("http://127.0.0.1:1", monkeypatch)
    branching = "rollout.branching={total: 4, init: 2}"
    with pytest.raises(ValueError, match=r"mode is entropy, .*'sage'"):
        load_experiment("atlas.yaml", *WITHOUT_WEIGHTS, branching)


def test_a_chat_service_that_the_site_lacks_is_named(folder: Path) -> None:
    with pytest.raises(ValueError, match="model: The site 'local' has no endpoint 'sage'"):
        load_experiment("atlas.yaml", *WITHOUT_WEIGHTS)
