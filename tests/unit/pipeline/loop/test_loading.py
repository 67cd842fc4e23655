"""Loading an experiment by its name."""

from pathlib import Path

import pytest

from agentfly_core import Ending, Episode, tool
from agentfly_core.pipeline.loop import loading
from agentfly_core.store.store import Store
from tests.support.experiments import TINY

MADE = []


@tool
class Counted:
    """Look a word up."""

    def __init__(self, most: int = 1) -> None:
        MADE.append(most)

    def __call__(self, word: str) -> str:
        return word


class Reader:
    """An agent that needs hidden states."""

    reads_hidden_states = True

    async def __call__(self, episode: Episode) -> Ending:
        await episode.hidden(None, *episode.opening)
        return Ending.NO_TOOL_CALLS


def test_tasks_are_imported_once_with_the_digests_of_the_code(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY)
    store = Store.at(str(tmp_path), tmp_path)
    tools = f"tools=[{{use: '{__name__}:Counted', most: 7}}]"
    experiment = loading.load(str(tmp_path / "tiny.yaml"), [tools], "local", "", lambda _: store)
    assert MADE == [7]
    assert experiment.settings.code
    assert experiment.whole.settings == experiment.settings
    assert experiment.tasks["single"].settings == experiment.settings
    assert experiment.mixture == {}


def test_vllm_refuses_an_agent_that_reads_hidden_states(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY)
    store = Store.at(str(tmp_path), tmp_path)
    there = (str(tmp_path / "tiny.yaml"), [f"agent.use='{__name__}:Reader'"], "local", "")
    monkeypatch.setenv("AGENTFLY_SAMPLER", "transformers")
    loading.load(*there, lambda _: store)
    monkeypatch.setenv("AGENTFLY_SAMPLER", "vllm")
    with pytest.raises(ValueError, match="reads hidden states"):
        loading.load(*there, lambda _: store)
