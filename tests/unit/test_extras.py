"""What can be installed beside the core: pinned in the lists, and free of the GPL but for one that
has a list of its own.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, metadata, requires

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.project import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
OF_THE_LOCK = {"cpu", "gpu", "smollm2", "test"}
"""What a list is made for; their packages ask for what the lists leave out on purpose."""
UNDER_THE_GPL = "textworld"
ADDED = sorted(EXTRAS.keys() - OF_THE_LOCK - {UNDER_THE_GPL})


def pins(name: str) -> dict[str, str]:
    lines = (ROOT / "requirements" / name).read_text().splitlines()
    pinned = (line.partition(" ")[0].split("==") for line in lines if "==" in line)
    return {canonicalize_name(name.partition("[")[0]): version for name, version in pinned}


def asked_for(first: list[str]) -> Iterator[Requirement]:
    """What packages ask for, directly or not, as far as they are installed."""
    left, seen = [Requirement(text) for text in first], set[str]()
    while left:
        asked = left.pop()
        yield asked
        for text in requirements_of(asked.name) if asked.name not in seen else ():
            further = Requirement(text)
            if any(applies(further, extra) for extra in ("", *asked.extras)):
                left.append(further)
        seen.add(asked.name)


def is_installed(name: str) -> bool:
    try:
        return bool(metadata(name))
    except PackageNotFoundError:
        return False


def requirements_of(name: str) -> list[str]:
    return requires(name) or [] if is_installed(name) else []


def name_missing(found: list[Requirement]) -> None:
    """Skip a test that has looked at all else, with the packages that it could not look into."""
    if missing := sorted({asked.name for asked in found if not is_installed(asked.name)}):
        pytest.skip(f"not installed, so not looked into: {', '.join(missing)}")


def applies(asked: Requirement, extra: str) -> bool:
    return asked.marker is None or asked.marker.evaluate({"extra": extra})


@pytest.mark.parametrize("lock", ["cpu.txt", "gpu.txt"])
@pytest.mark.parametrize("extra", [*ADDED, UNDER_THE_GPL])
def test_an_extra_resolves_with_the_lock(extra: str, lock: str) -> None:
    pinned, found = pins(lock), list(asked_for(EXTRAS[extra]))
    if extra == UNDER_THE_GPL:
        pinned |= pins("textworld.txt")
    for asked in found:
        version = pinned.get(canonicalize_name(asked.name))
        assert version, f"{lock} has no {asked.name}"
        assert asked.specifier.contains(version, prereleases=True), f"{asked}, {lock} has {version}"
    name_missing(found)


@pytest.mark.parametrize("extra", ADDED)
def test_no_extra_installs_what_is_under_the_gpl(extra: str) -> None:
    found = list(asked_for(EXTRAS[extra]))
    for asked in found:
        if is_installed(asked.name):
            assert not re.search(r"\bA?GPL|(?<!Lesser )General Public", licence(asked.name)), asked
    name_missing(found)


@pytest.mark.parametrize("lock", ["cpu.txt", "gpu.txt"])
def test_what_is_under_the_gpl_is_in_no_list_but_its_own(lock: str) -> None:
    assert pins("textworld.txt")["jericho"]
    assert not pins("textworld.txt").keys() & pins(lock).keys()


def licence(package: str) -> str:
    """What a package calls its licence; not the text, which also names what it may be linked to."""
    told = metadata(package)
    classifiers = [line for line in told.get_all("Classifier") or [] if line.startswith("License")]
    written = told.get("License-Expression") or told.get("License") or ""
    return "; ".join([written.partition("\n")[0], *classifiers])


def test_the_dry_run_of_make_is_of_every_extra() -> None:
    (named,) = re.findall(r"^EXTRAS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert named.split(",") == ADDED
