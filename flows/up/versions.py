"""What is installed of what `agentfly up` keeps running: whether it fits together, and whether it
has changed since.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution

from packaging.requirements import Requirement

OURS = "agentfly-pipelines"
SERVED = (OURS, "prefect", "mlflow")


@dataclass(frozen=True, slots=True)
class Installed:
    """What is installed: `Installed("0.1.0", ("4f1c...", "a07e...", "88b2..."))`, with a digest of
    each package's list of files.
    """

    version: str
    digests: tuple[str, ...]

    @classmethod
    def now(cls) -> Installed:
        """What is installed now; raises PackageNotFoundError while it is being replaced."""
        packages = [distribution(name) for name in SERVED]
        lists = [(package.read_text("RECORD") or "").encode() for package in packages]
        return cls(packages[0].version, tuple(hashlib.sha256(files).hexdigest() for files in lists))


class Changes:
    """Tells whether something else has been installed since it was made."""

    def __init__(self) -> None:
        self._first = self._last = Installed.now()

    def version(self) -> str | None:
        """The version of AgentFly that is installed instead; None where all is as it was, and until
        another look finds the same: pip writes file by file.
        """
        try:
            now = Installed.now()
        except PackageNotFoundError:
            return None
        settled, self._last = now == self._last, now
        return now.version if settled and now != self._first else None


def require_matching() -> None:
    """Raise ValueError for packages of versions that AgentFly was not made for, or that are
    missing.
    """
    if clashes := list(_clashes(distribution(OURS), frozenset())):
        raise ValueError(
            f"AgentFly {distribution(OURS).version} does not fit what is installed beside it: "
            f"{'; '.join(clashes)}. Install the pinned list again: `agentfly requirements cpu` "
            "prints it."
        )


def _clashes(package: Distribution, extras: frozenset[str]) -> Iterator[str]:
    for text in package.requires or ():
        wanted = Requirement(text)
        if not _applies(wanted, extras):
            continue
        try:
            installed = distribution(wanted.name)
        except PackageNotFoundError:
            yield f"{wanted.name} is missing, expected {wanted}"
            continue
        if not wanted.specifier.contains(installed.version, prereleases=True):
            yield f"{wanted.name} {installed.version} is installed, expected {wanted}"
        elif wanted.extras:
            yield from _clashes(installed, frozenset(wanted.extras))


def _applies(wanted: Requirement, extras: frozenset[str]) -> bool:
    """Whether a requirement is one of a package itself (no extras), or of one of these extras."""
    marker = wanted.marker
    if not extras:
        return marker is None or marker.evaluate({"extra": ""})
    return marker is not None and any(
        marker.evaluate({"extra": extra}) and not marker.evaluate({"extra": ""}) for extra in extras
    )
