"""Find writable control groups, independent of the names of groups and mounts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentfly_core.sandbox.cgroups import PREFIX, Cgroups, _candidates
from agentfly_core.system.process import Owner

V2 = b"30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = b"31 23 0:27 /docker/a /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
STICK = b"99 23 8:17 / /media/caf\xe9\\040(1)\xc2\x85 rw - ext4 /dev/sdb1 rw\n"
NAMES = [b"user", b"a:b", b"a b", b"a (deleted)", b"a\\b", b"a\rb", b"a\x1cb", b"caf\xe9"]
NAMES += [b"a\xc2\x85b", b"\xe2\x80\xa8"]


def candidates(folder: Path, groups: bytes, mounts: bytes) -> list[tuple[str, list[bytes]]]:
    (folder / "cgroup").write_bytes(groups)
    (folder / "mountinfo").write_bytes(mounts)
    return [
        (version, [os.fsencode(place) for place in places])
        for version, places in _candidates(folder)
    ]


@pytest.mark.parametrize("name", NAMES)
def test_a_group_may_have_any_name(tmp_path: Path, name: bytes) -> None:
    groups = candidates(tmp_path, b"0::/" + name + b"\n", STICK + V2)
    assert groups == [("v2", [b"/sys/fs/cgroup/" + name]), ("v2", [b"/sys/fs/cgroup"]), ("v1", [])]
    groups = candidates(tmp_path, b"5:memory:/docker/a/" + name + b"\n", STICK + V1)
    assert groups == [("v1", [b"/sys/fs/cgroup/memory/" + name])]


def test_groups_may_be_mounted_anywhere(tmp_path: Path) -> None:
    mounted = V2.replace(b"/sys/fs/cgroup", b"/my\\040groups\\134")
    assert candidates(tmp_path, b"0::/user\n", mounted)[0] == ("v2", [b"/my groups\\/user"])


@pytest.mark.parametrize("groups", [b"", b"0::\n", b"nonsense\n", b"\n"])
def test_without_a_group_that_can_be_read_there_is_none(tmp_path: Path, groups: bytes) -> None:
    assert candidates(tmp_path, groups, V2 + V1) == [("v1", [])]


def test_a_group_that_we_did_not_make_stays(tmp_path: Path) -> None:
    dead = f"{PREFIX}0-{Owner(Owner.current().host, 999999, 1.0, '', 1).mark}"
    for name in (dead, f"{PREFIX}mine", f"{PREFIX}a-b-c-d", f"{PREFIX}0-{Owner.current().mark}"):
        (tmp_path / name).mkdir()
    Cgroups("v1", (tmp_path,)).sweep()
    assert len(list(tmp_path.iterdir())) == 3
    assert not (tmp_path / dead).exists()
