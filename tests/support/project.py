"""A project for a test: the content of a clone of this repository with the experiments of
tests/conf.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from agentfly_core.system.supervisor import die_with_parent
from tests.support.waiting import LIMIT

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(sys.executable).parent
FILES = (".dvc/config", ".dvcignore", "dvc.yaml", "prefect.yaml", "pyproject.toml")
CLONED = ("agentfly_core", "flows", "tasks", "data/raw", *FILES)
PARAMS = "experiment: tiny\nroot: .\nparams: params.yaml\noverrides: []\n"


class Project:
    """A project folder and its commands: `project.run("agentfly", "train", "tiny")`."""

    def __init__(self, root: Path, **env: str) -> None:
        self.root = root
        path = f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}"
        self.env = {
            **os.environ,
            "PATH": path,
            "AGENTFLY_SAMPLER": "transformers",
            **env,
        }

    @classmethod
    def clone(cls, root: Path, **env: str) -> "Project":
        """Copy the repository's tracked parts to `root`; its dvc.yaml's experiment is `tiny`."""
        for name in CLONED:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            copy(ROOT / name, root / name)
        shutil.copytree(ROOT / "tests" / "conf", root / "conf")
        (root / "params.yaml").write_text(PARAMS)
        subprocess.run(["git", "init", "-q", str(root)], check=True)
        return cls(root, **env)

    def start(self, *words: str, **env: str) -> "subprocess.Popen[str]":
        """Start a command in a process group of its own; its output goes to a pipe."""
        return subprocess.Popen(
            words,
            cwd=self.root,
            env={**self.env, **env},
            text=True,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            preexec_fn=die_with_parent,
        )

    def run(self, *words: str, **env: str) -> str:
        """The output of a command; fails the test when the command fails."""
        process = self.start(*words, **env)
        printed, _ = process.communicate(timeout=LIMIT)
        assert process.returncode == 0, f"{' '.join(words)} failed:\n{printed}"
        return printed
