"""Store a run of this version for the test of upgrades: `python -m tests.support.release_run`.

The release commit runs it and commits the archive. The experiment is that of the archive before.
"""

import os
import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path

from tests.support.project import ROOT

FIXTURES = ROOT / "tests/fixtures"
EXPERIMENT = ("experiment.yaml", "own_even.py")
TRAIN = ("train", "experiment.yaml", "--run", "first")
STORED = ("runs", "artifacts")


def main() -> None:
    """Train the experiment, and replace the archive."""
    (before,) = FIXTURES.glob("run-*.tar.xz")
    env = {**os.environ, "AGENTFLY_SAMPLER": "transformers", "AGENTFLY_WORKERS": "0"}
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(before) as archive:
            for name in EXPERIMENT:
                archive.extract(name, folder, filter="data")
        subprocess.run([sys.executable, "-m", "flows", *TRAIN], cwd=folder, env=env, check=True)
        before.unlink()
        with tarfile.open(FIXTURES / f"run-{version('agentfly-pipelines')}.tar.xz", "w:xz") as new:
            for name in (*EXPERIMENT, *STORED):
                new.add(Path(folder) / name, name)


if __name__ == "__main__":
    main()
