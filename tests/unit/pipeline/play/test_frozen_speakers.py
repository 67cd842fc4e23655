"""Frozen speakers of a scripted play, from the command line to the output."""

import json
import shutil
from pathlib import Path

import pytest

from agentfly_core.experiment.run_layout import PlayLayout
from agentfly_core.records.parquet import EPISODES, read_trajectories
from agentfly_core.records.trajectory import Trajectory
from agentfly_core.store.artifact import ArtifactKey
from agentfly_core.store.store import Store
from flows.__main__ import main
from tests.support.capitals import EXPERIMENT
from tests.support.chat_service import completion, serving

AGENT = "agent.use=tests.support.critics:criticised"
CHATS = ("--policy", "tests.support.capitals:chats", "-n", "3")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nano: Path) -> Store:
    """The store of a project folder, the working directory, with an experiment and a run of its
    model.
    """
    (tmp_path / "atlas.yaml").write_text(EXPERIMENT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AGENTFLY_SAMPLER", "transformers")
    store = Store.at(".", tmp_path / "cache")
    key = ArtifactKey("runs/demo/steps/000007/policy", "update", "key", {})
    with store.publish(key) as folder:
        shutil.copytree(nano, folder, dirs_exist_ok=True)
    return store


def critics(store: Store, name: str) -> list[Trajectory]:
    """Return the replies of the critic in the played episodes."""
    folder = store.open(store.artifact(PlayLayout(name).rollout(0)))
    return [one for one in read_trajectories(folder / EPISODES) if one.agent == "critic"]


@pytest.mark.slow
def test_a_service_is_shown_as_text_and_a_policy_as_tokens(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(lambda body, number: completion("That is too vague.")) as there:
        site = {"sage": {"url": there.url, "model": "wise"}}
        monkeypatch.setenv("AGENTFLY_ENDPOINTS", json.dumps(site))
        words = ("play", "atlas.yaml", AGENT, *CHATS)
        assert main([*words, "agent.frozen.critic=endpoint:sage"]) == 0
        assert len(there.asked) == 3
    assert main([*words, "agent.frozen.critic=run:demo@7"]) == 0
    for one in critics(store, "atlas-1"):
        assert (one.policy, one.sampled_tokens) == ("endpoint:sage", 0)
    for one in critics(store, "atlas-2"):
        assert (one.policy, one.turns[0].sampled[0].policy_version) == ("run:demo@7", 7)
    capsys.readouterr()
    assert main(["show", "play:atlas-1", "--problem", "Chile"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "0 sampled tokens of endpoint:sage, frozen" in out
    assert "read | Be strict." in out and "said > That is too vague." in out
    assert main(["show", "play:atlas-2", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["shown"]
    assert {one["agent"]: one["policy"] for one in shown} == {
        "criticised": "",
        "critic": "run:demo@7",
    }
