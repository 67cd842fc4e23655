"""Loading an experiment by its name."""

from pathlib import Path

from agentfly_core import tool
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
