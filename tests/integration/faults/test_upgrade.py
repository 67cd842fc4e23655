"""A run that version 0.1.0 stored is shown and continued by this version."""

import tarfile
from pathlib import Path

from tests.support.killed_commands import Lives, digests
from tests.support.project import ROOT

STORED = ROOT / "tests/fixtures/run-0.1.0.tar.xz"
KINDS = ("prepare", "model", "demonstrate", "warm_start", "evaluate")
TRAIN = ("train", "experiment.yaml", "--run", "first")


def test_a_run_of_the_first_version_continues(tmp_path: Path, lives: Lives) -> None:
    """Its data, base model, warm start and first step are kept byte for byte."""
    with tarfile.open(STORED) as archive:
        archive.extractall(tmp_path, filter="data")
    stored = digests(tmp_path)
    del stored["runs/first/ledger"]  # it grows
    assert {name.split("/")[1] for name in stored if name.startswith("artifacts/")} >= set(KINDS)
    end = lives.run(tmp_path, "show", "first")
    assert (end.code, end.printed.count("sampled >") > 0) == (0, True), end.printed
    end = lives.run(tmp_path, *TRAIN, "steps=2")
    assert end.code == 0, end.printed
    continued = digests(tmp_path)
    assert stored.items() <= continued.items()
    assert "runs/first/steps/000002/policy" in continued
