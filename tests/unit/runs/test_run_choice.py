"""Listed runs, their order, and their differences."""

import io
import json
import re
from pathlib import Path

import pytest
from rich.console import Console

from agentfly_core.runs.listing import (
    Listed,
    Sorting,
    Unreadable,
    as_json,
    differences,
    only,
    ordered,
    view,
)
from agentfly_core.store.store import Store
from agentfly_core.system.formats.json_value import JSON


def run(
    name: str, created: int, success: float | None, changed: dict[str, JSON], *tags: str
) -> Listed:
    settings: dict[str, JSON] = {"seed": 0, "update.learning_rate": 1e-5, "steps": 9, **changed}
    state = "stopped" if success is None else "finished"
    return Listed(
        name, state, "", created, 9, success, f"agentfly show {name}", "shop", created, tags,
        changed, settings,
    )  # fmt: skip


A = run("a", 3, 0.5, {"update.learning_rate": 3e-4, "steps": 9}, "baseline")
B = run("b", 1, None, {"seed": 1, "steps": 9})
C = run("c", 2, 0.75, {"update.learning_rate": 3e-4, "seed": 2, "steps": 9})
RUNS = [A, B, C, Unreadable("bad", "run.json is damaged")]


@pytest.mark.parametrize(
    ("conditions", "left"),
    [
        (["update.learning_rate=3e-4"], ["a", "c"]),
        (["update.learning_rate=3e-4", "seed=2"], ["c"]),
        (["state=stopped"], ["b"]),
        (["experiment=shop"], ["a", "b", "c"]),
        (["tag=baseline"], ["a"]),
        (["BASE"], ["a"]),
        (["damaged"], ["bad"]),
        (["seed: 1"], []),
        (["state=running"], []),
        (["seed=0", "state=stopped"], []),
    ],
)
def test_all_conditions_must_hold_for_a_run(conditions: list[str], left: list[str]) -> None:
    assert [each.name for each in only(RUNS, conditions)] == left


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        (
            "update.lerning_rate=1",
            "no run has the key 'update.lerning_rate'. Did you mean 'update.learning_rate'?",
        ),
        ("state=stoped", "no run has state=stoped. Did you mean 'stopped'?"),
        ("tag=baselin", "no run has tag=baselin. Did you mean 'baseline'?"),
        ("experiment=quiz", "no run has experiment=quiz. Known: shop."),
        ("seed=7", "no run has seed=7. Known: 0, 1, 2."),
    ],
)
def test_a_key_or_value_that_no_run_has_is_refused(condition: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"--filter: {message}")):
        only(RUNS, [condition])
    assert only([], [condition]) == []


@pytest.mark.parametrize(
    ("by", "names"),
    [
        ("name", ["a", "b", "bad", "c"]),
        ("time", ["a", "c", "b", "bad"]),
        ("success", ["c", "a", "b", "bad"]),
        ("step", ["a", "c", "b", "bad"]),
    ],
)
def test_the_newest_best_or_furthest_runs_come_first(by: Sorting, names: list[str]) -> None:
    assert [each.name for each in ordered(RUNS, by)] == names


def test_runs_show_only_their_differences(tmp_path: Path) -> None:
    assert differences([A, B, C]) == {
        "a": {"seed": 0, "update.learning_rate": 3e-4},
        "b": {"seed": 1},
        "c": {"seed": 2, "update.learning_rate": 3e-4},
    }
    assert differences([A]) == {"a": {}}
    console = Console(file=io.StringIO(), width=200)
    console.print(view(RUNS, Store.at(str(tmp_path), tmp_path)))
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()[::2]
    assert [line.split()[-3:] for line in lines[:1]] == [
        ["seed=0", "update.learning_rate=0.0003", "#baseline"]
    ]


def test_json_has_all_fields_of_a_run() -> None:
    documents = json.loads(json.dumps(as_json(RUNS)))["runs"]
    assert (documents[1]["differs"], documents[0]["tags"]) == ({"seed": 1}, ["baseline"])
    assert documents[3] == {"name": "bad", "state": "damaged", "fault": "run.json is damaged"}
