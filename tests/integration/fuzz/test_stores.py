"""Damaged files of plays, sweeps, tags, forks and compared runs are named and not believed."""

import logging
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentfly_core.config.experiment import Fork
from agentfly_core.pipeline.retention import kept_for_others
from agentfly_core.reports.compare.comparison_view import view as compared_view
from agentfly_core.reports.compare.run_comparison import compared, tried
from agentfly_core.reports.compare.run_steps import curve
from agentfly_core.reports.compare.sweep import runs_named
from agentfly_core.reports.show import printed as printing
from agentfly_core.reports.show.choice import by_episode
from agentfly_core.reports.show.sources import read, reference
from agentfly_core.runs.listing import listed, view
from agentfly_core.runs.run_tags import change_tags, tags_of
from agentfly_core.store.store import Store
from flows.__main__ import main
from tests.support.capitals import EXPERIMENT
from tests.support.damage import check, damage, listen, printed, records, suffered
from tests.support.evaluated_runs import finished, project

SEED = 15
PARTS = ("artifacts", "plays", "runs")
MEMBERS = (("slow", "11000000"), ("fast", "11111100"))


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """The working directory with a sweep of two runs, a fork and tags, and eight played episodes
    in two shards.
    """
    monkeypatch.chdir(tmp_path)
    store = project(tmp_path)
    for number, (name, solved) in enumerate(MEMBERS):
        finished(store, name, solved, f"update.learning_rate={number + 1}.0e-6")
        change_tags(store, name, ["rates"], [])
    fork = Fork(run="slow", step=1, optimizer_state="fresh")
    finished(store, "forked", "11110000", f"fork={fork.model_dump_json()}")
    change_tags(store, "slow", ["baseline"], [])
    (tmp_path / "conf/atlas.yaml").write_text(EXPERIMENT)
    assert main(["play", "atlas", "--policy", "oracle"]) == 0
    return store


def readers(store: Store) -> dict[str, Callable[[], Any]]:
    """Readers of such a store, by name."""

    def comparison() -> str:
        try:
            policies = [tried(store, name, "test") for name in runs_named(store, ["sweep:rates"])]
        except ValueError as refused:  # for example a run without a stored evaluation
            return str(refused)
        comparison_of_policies = compared(policies)
        curves = {
            group.label: [curve(store, policy.run, policy.step) for policy in group.policies]
            for group in comparison_of_policies.groups
        }
        return printed(compared_view(comparison_of_policies, curves, "test"))

    def play() -> str:
        stored = read(store, reference("play:atlas-1"), "", False)
        return printed(printing.show(stored, 8, by_episode(stored.pairs)[:8]))

    return {
        "list": lambda: printed(view(listed(store), store)),
        "tags": lambda: tags_of(store, "slow"),
        "compare": comparison,
        "play": play,
        "forks": lambda: kept_for_others(store, "slow"),
    }


@pytest.mark.parametrize("cases", [60, pytest.param(500, marks=pytest.mark.long)])
def test_damaged_files_of_every_reader_are_named(
    store: Store, caplog: pytest.LogCaptureFixture, cases: int
) -> None:
    caplog.set_level(logging.WARNING)
    by_name = readers(store)
    before = {name: listen(reader, caplog).given for name, reader in by_name.items()}
    draw, paths = random.Random(SEED), records(store.root, *PARTS)
    for _ in range(cases):
        suffer = damage(draw, draw.choice(paths))
        with suffered(suffer):
            heard = {name: listen(reader, caplog) for name, reader in by_name.items()}
        for name, now in heard.items():
            check(suffer, now, before[name])
        parts = suffer.path.relative_to(store.root).parts
        # we never read some files of a tokenizer's folder
        if parts[0] == "plays" and "tokenizer" not in parts:
            assert any(str(suffer.path) in now.told for now in heard.values()), str(suffer)
