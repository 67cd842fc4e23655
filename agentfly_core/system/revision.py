"""The git revision of the code that made an artifact or a run."""

import functools
import hashlib
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent


@functools.cache
def revision(folder: Path = HERE) -> dict[str, str]:
    """Return the git commit of a folder and a digest of the uncommitted changes:
    `{"commit": "4f0c...", "dirty": ""}`.

    The default folder is the folder of this package. Both values are empty outside of a git
    checkout. `dirty` is empty without uncommitted changes. The result is cached.
    """
    commit = _git(folder, "rev-parse", "HEAD")
    change = _git(folder, "diff", "--no-ext-diff", "HEAD") if commit else ""
    return {
        "commit": commit.strip(),
        "dirty": hashlib.sha256(change.encode()).hexdigest()[:16] if change else "",
    }


def _git(folder: Path, *words: str) -> str:
    try:
        return subprocess.check_output(
            ["git", *words],
            cwd=folder,
            stderr=subprocess.DEVNULL,
            text=True,
            errors="replace",  # files may have another encoding
            timeout=20,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
