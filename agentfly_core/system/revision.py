"""The git revision that produced an artifact or a run. It is recorded, but never compared."""

import functools
import hashlib
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent


@functools.cache
def revision(folder: Path = HERE) -> dict[str, str]:
    """Return the git commit of a folder and the digest of its uncommitted changes, `{"commit":

    "4f0c...", "dirty": ""}`. Cached. Both are empty outside of a git checkout. The default folder
    is the folder of this package.
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
