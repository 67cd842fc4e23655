"""Runs by shorter names."""

from pathlib import Path

import pytest

from agentfly_core.runs.listing import run_named
from agentfly_core.runs.run_request import similar_run
from agentfly_core.store.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Two runs of `tiny`, the second one newer, and one of `shop`."""
    store = Store.at(str(tmp_path), tmp_path)
    for number, (name, experiment) in enumerate(
        [("tiny-9f", "tiny"), ("tiny-1a", "tiny"), ("shop-5c", "shop")]
    ):
        record = {"name": name, "experiment": experiment, "created_ms": number}
        store.write_json(f"runs/{name}/run.json", {**record, "settings": {"steps": 5, "seed": 0}})
    return store


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("tiny", "tiny-1a"),
        ("tiny@3", "tiny-1a@3"),
        ("tiny-9", "tiny-9f"),
        ("run:sh@2", "shop-5c@2"),
        ("tiny-9f", "tiny-9f"),
        ("market", "market"),
    ],
)
def test_a_run_has_shorter_names(store: Store, typed: str, name: str) -> None:
    assert run_named(store, typed) == name


def test_an_ambiguous_prefix_is_refused_with_its_names(store: Store) -> None:
    with pytest.raises(ValueError, match=r"tiny-: tiny-1a, tiny-9f\."):
        run_named(store, "tiny-")


def test_a_run_of_fewer_steps_is_found_by_its_settings(store: Store) -> None:
    shorter = similar_run(store, {"steps": 7, "seed": 0})
    assert shorter is not None and shorter["name"] == "shop-5c"
    assert similar_run(store, {"steps": 5, "seed": 0}) is None
    assert similar_run(store, {"steps": 4, "seed": 0}) is None
    assert similar_run(store, {"steps": 7, "seed": 1}) is None


def test_a_shorter_run_goes_before_a_newer_one_with_other_code(store: Store) -> None:
    for number, (name, code) in enumerate([("finished", "9f"), ("aborted", "1a")]):
        settings = {"steps": 8, "seed": 3, "code": {"rollout": {"depot": code}}}
        record = {"name": name, "experiment": "depot", "created_ms": number, "settings": settings}
        store.write_json(f"runs/{name}/run.json", record)
    now = {"steps": 12, "seed": 3, "code": {"rollout": {"depot": "9f"}}}
    shorter = similar_run(store, now)
    assert shorter is not None and shorter["name"] == "finished"
