"""The code revision that produced an artifact: recorded in every manifest, never compared."""

from __future__ import annotations

import functools
import hashlib
import subprocess
from pathlib import Path


@functools.cache
def revision() -> dict[str, str]:
    """The git commit of this package and a digest of its uncommitted changes; empty strings outside
    a checkout.

    `{"commit": "4f0c...", "dirty": ""}`.
    """
    commit = _git("rev-parse", "HEAD")
    change = _git("diff", "HEAD") if commit else ""
    return {
        "commit": commit.strip(),
        "dirty": hashlib.sha256(change.encode()).hexdigest()[:16] if change else "",
    }


def _git(*words: str) -> str:
    try:
        return subprocess.check_output(
            ["git", *words],
            cwd=Path(__file__).resolve().parent,
            stderr=subprocess.DEVNULL,
            text=True,
            errors="replace",  # a file may be no UTF-8
            timeout=20,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
