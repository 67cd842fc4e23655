"""What the commands print that need no run."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.__main__ import main

TINY = """
model: nano:calculator
data: {use: "agentfly_core.datasets.arithmetic:arithmetic", train: 64, test: 16}
rewards: {"agentfly_core.rewards.exact:exact": 1.0}
steps: 2
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project folder, the working directory, with one experiment and a site of its own."""
    (tmp_path / "conf/site").mkdir(parents=True)
    (tmp_path / "conf/tiny.yaml").write_text(TINY)
    (tmp_path / "conf/site/lab.yaml").write_text("sampler: transformers\ntoken_budget: 4096\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


def test_config_shows_science_and_site_with_where_each_value_came_from(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AGENTFLY_RANKS", "2")
    assert main(["config", "tiny", "seed=3", "--site", "lab", "--store", "elsewhere"]) == 0
    rows = [[cell.strip() for cell in line.split("│")] for line in capsys.readouterr().out.splitlines()]
    for row in (
        ["steps", "2", "conf/tiny.yaml"],
        ["seed", "3", "override"],
        ["rollout.group_size", "8", "default"],
        ["site.name", '"lab"', "--site"],
        ["site.sampler", '"transformers"', "conf/site/lab.yaml"],
        ["site.ranks", "2", "AGENTFLY_RANKS"],
        ["site.store", '"elsewhere"', "--store"],
        ["site.zero_stage", "1", "default"],
    ):
        assert row in rows
