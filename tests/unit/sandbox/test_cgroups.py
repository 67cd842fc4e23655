"""Find writable control groups, independent of their names."""

import os
from pathlib import Path

import pytest

from agentfly_core.sandbox.cgroups import PREFIX, Cgroups, _candidates
from agentfly_core.system.process import Owner

NAMES = [b"user", b"a:b", b"a b", b"a (deleted)", b"a\\b", b"a\rb", b"a\x1cb", b"caf\xe9"]
NAMES += [b"a\xc2\x85b", b"\xe2\x80\xa8"]


def candidates(root: Path, groups: bytes) -> list[tuple[str, list[bytes]]]:
    return [
        (version, [os.fsencode(place.relative_to(root)) for place in places])
        for version, places in _candidates(groups, root)
    ]


@pytest.mark.parametrize("name", NAMES)
def test_a_group_may_have_any_name(tmp_path: Path, name: bytes) -> None:
    groups = candidates(tmp_path, b"0::/" + name + b"\n")
    assert groups == [("v2", [name]), ("v2", [b"."]), ("v1", [])]
    own = b"memory/docker/" + name
    (tmp_path / os.fsdecode(own)).mkdir(parents=True)
    assert candidates(tmp_path, b"5:memory:/docker/" + name + b"\n") == [("v1", [own])]


def test_a_container_sees_its_group_as_the_root(tmp_path: Path) -> None:
    assert candidates(tmp_path, b"5:memory:/docker/a\n4:cpu:/\n") == [("v1", [b"memory"])]


@pytest.mark.parametrize("groups", [b"", b"0::\n", b"nonsense\n", b"\n"])
def test_without_a_group_that_can_be_read_there_is_none(tmp_path: Path, groups: bytes) -> None:
    assert candidates(tmp_path, groups) == [("v1", [])]


def test_a_group_that_we_did_not_make_stays(tmp_path: Path) -> None:
    dead = f"{PREFIX}0-{Owner(Owner.current().host, 999999, 1.0, '', 1).mark}"
    for name in (dead, f"{PREFIX}mine", f"{PREFIX}a-b-c-d", f"{PREFIX}0-{Owner.current().mark}"):
        (tmp_path / name).mkdir()
    Cgroups("v1", (tmp_path,)).sweep()
    assert len(list(tmp_path.iterdir())) == 3
    assert not (tmp_path / dead).exists()
