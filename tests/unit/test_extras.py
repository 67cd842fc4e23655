"""Extras are pinned in the lists and free of the GPL. GPL packages have their own list."""

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
"""The purpose of each list; the lists omit some dependencies on purpose."""
UNDER_THE_GPL = "textworld"
ADDED = sorted(EXTRAS.keys() - OF_THE_LOCK - {UNDER_THE_GPL})


def pins(name: str) -> dict[str, str]:
    lines = (ROOT / "requirements" / name).read_text().splitlines()
    pinned = (line.partition(" ")[0].split("==") for line in lines if "==" in line)
    return {canonicalize_name(name.partition("[")[0]): version for name, version in pinned}


def asked_for(first: list[str]) -> Iterator[Requirement]:
    """Direct and indirect requirements of packages, as far as they are installed."""
    left, seen = [Requirement(text) for text in first], set[str]()
    while left:
        requirement = left.pop()
        yield requirement
        for text in requirements_of(requirement.name) if requirement.name not in seen else ():
            further = Requirement(text)
            if any(applies(further, extra) for extra in ("", *requirement.extras)):
                left.append(further)
        seen.add(requirement.name)


def is_installed(name: str) -> bool:
    try:
        return bool(metadata(name))
    except PackageNotFoundError:
        return False


def requirements_of(name: str) -> list[str]:
    return requires(name) or [] if is_installed(name) else []


def name_missing(requirements: list[Requirement]) -> None:
    """Skip the rest of a test and name the packages that are not installed."""
    if missing := sorted(
        {requirement.name for requirement in requirements if not is_installed(requirement.name)}
    ):
        pytest.skip(f"not installed, so not looked into: {', '.join(missing)}")


def applies(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


@pytest.mark.parametrize("lock", ["cpu.txt", "gpu.txt"])
@pytest.mark.parametrize("extra", [*ADDED, UNDER_THE_GPL])
def test_the_lock_has_the_packages_of_each_extra(extra: str, lock: str) -> None:
    pinned, requirements = pins(lock), list(asked_for(EXTRAS[extra]))
    if extra == UNDER_THE_GPL:
        pinned |= pins("textworld.txt")
    for requirement in requirements:
        version = pinned.get(canonicalize_name(requirement.name))
        assert version, f"{lock} has no {requirement.name}"
        assert requirement.specifier.contains(version, prereleases=True), (
            f"{requirement}, {lock} has {version}"
        )
    name_missing(requirements)


@pytest.mark.parametrize("extra", ADDED)
def test_no_extra_installs_gpl_packages(extra: str) -> None:
    requirements = list(asked_for(EXTRAS[extra]))
    for requirement in requirements:
        if is_installed(requirement.name):
            assert not re.search(
                r"\bA?GPL|(?<!Lesser )General Public", licence(requirement.name)
            ), requirement
    name_missing(requirements)


@pytest.mark.parametrize("lock", ["cpu.txt", "gpu.txt"])
def test_gpl_packages_are_in_their_own_list_only(lock: str) -> None:
    assert pins("textworld.txt")["jericho"]
    assert not pins("textworld.txt").keys() & pins(lock).keys()


def licence(package: str) -> str:
    """The licence field of a package, not the text, which can name other licences."""
    fields = metadata(package)
    classifiers = [
        line for line in fields.get_all("Classifier") or [] if line.startswith("License")
    ]
    written = fields.get("License-Expression") or fields.get("License") or ""
    return "; ".join([written.partition("\n")[0], *classifiers])


def test_make_dry_run_has_every_extra() -> None:
    (named,) = re.findall(r"^EXTRAS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert named.split(",") == ADDED
