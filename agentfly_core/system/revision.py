"""The git revision that produced an artifact or a run: recorded, never compared."""

from __future__ import annotations

import functools
import hashlib
import subprocess
from pathlib import Path


def revision() -> dict[str, str]:
    """The revision of this package, see `revision_of`."""
    return revision_of(Path(__file__).resolve().parent)


@functools.cache
def revision_of(folder: Path) -> dict[str, str]:
    """Commit and digest of uncommitted changes of a folder, cached: `{"commit": "4f0c...", "dirty":
    ""}`; empty outside a checkout.
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
            errors="replace",  # a file may be no UTF-8
            timeout=20,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
