"""Folders of played episodes and the name of the next play."""

from pathlib import Path

from agentfly_core.experiment.run_layout import PlayLayout, next_play
from agentfly_core.store.store import Store


def test_played_episodes_are_in_a_folder_of_their_name() -> None:
    layout = PlayLayout("quickstart-3")
    assert [layout.record, layout.rollout(1), layout.scored, layout.tokenizer] == [
        "plays/quickstart-3/play.json",
        "plays/quickstart-3/rollout-001",
        "plays/quickstart-3/scored",
        "plays/quickstart-3/tokenizer",
    ]


def test_each_experiment_counts_its_own_plays(
    tmp_path: Path,
) -> None:
    store = Store.at(str(tmp_path / "store"), tmp_path / "cache")
    assert next_play(store, "quickstart") == "quickstart-1"
    for name in ("quickstart-10", "quickstart-2", "quickstart-1", "shop-1"):
        store.write_json(PlayLayout(name).record, {})
    assert [next_play(store, "quickstart"), next_play(store, "shop")] == ["quickstart-3", "shop-2"]
    store.remove(PlayLayout("quickstart-1").uri)
    assert next_play(store, "quickstart") == "quickstart-1"
