"""The author's own repository: its revision, and what is not committed of it."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path

from agentfly_core.system.formats import hashing
from agentfly_core.system.formats.text import clip

LONGEST = 2**18
"""Bytes that are kept of an uncommitted change."""
SOURCES = ("*.py", "*.yaml", "*.yml", "*.toml", "*.json")
OURS = (".agentfly", "runs", "artifacts", "plays", "sweeps", "nights", "quarantine")
"""What AgentFly writes into a folder, the password of `agentfly up` among it: no source."""
MOST = 200
"""Untracked files that are kept."""


@dataclass(frozen=True, slots=True)
class Repository:
    """The commit of a repository and its uncommitted change, untracked sources too, without
    secrets and cut where it is very long: `Repository("4f0c...", "diff --git a/my_tools.py ...")`.
    """

    commit: str
    change: str

    @property
    def revision(self) -> dict[str, str]:
        """As records have it, like our own: `{"commit": "4f0c...", "dirty": "9f2c..."}`."""
        dirty = hashing.digest(self.change)[:16] if self.change else ""
        return {"commit": self.commit, "dirty": dirty}


@cache
def repository(folder: Path) -> Repository | None:
    """The repository that a folder lies in, as this process first saw it; None where it lies in
    none, or git is missing.
    """
    commit = _git(folder, "rev-parse", "HEAD").strip()
    if not commit:
        return None
    change = _git(folder, "diff", "--no-ext-diff", "HEAD")
    left = [f":(exclude,glob)**/{name}/**" for name in OURS]
    words = ("ls-files", "-z", "--others", "--exclude-standard", "--")
    listed = _git(folder, *words, *SOURCES, *left)
    for name in islice(filter(None, listed.split("\0")), MOST):
        # new sources as git would show them once they are added
        change += _git(folder, "diff", "--no-ext-diff", "--no-index", "--", "/dev/null", name)
    return Repository(commit, clip(change, LONGEST))


def _git(folder: Path, *words: str) -> str:
    """What git prints; nothing where it cannot be asked. A diff of two files ends with status 1."""
    try:
        done = subprocess.run(
            ["git", *words], cwd=folder, capture_output=True, timeout=20, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode(errors="replace") if done.returncode <= 1 else ""
