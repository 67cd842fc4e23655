"""A stranger's store or remote reads and changes nothing outside of the stores."""

import os
import random
import shutil
import signal
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from agentfly_core.store import store as stores
from agentfly_core.store.artifact import ArtifactKey
from agentfly_core.store.object_storage import Remote
from agentfly_core.store.store import Store
from flows import verification
from flows.__main__ import main
from tests.support.buckets import Objects
from tests.support.evaluated_runs import project
from tests.support.hostile_stores import HOSTILE, POLICY, RUN, SECRET, plant, shared_run, tree

SEED = 27
INTERRUPTED = 130
HANGS = 60
"""Seconds after which a command that opened a pipe or /dev/zero is ended."""


OBJECTS = dict.fromkeys(
    (
        f"{POLICY}/../../../../../lab/user/evil",
        f"{POLICY}/../../../../../../lab/user/evil",
        f"{POLICY}//lab/user/evil",
        f"runs/{RUN}/../../../lab/user/evil",
        "runs/../evil",
    ),
    b"evil",
)
"""Objects that a bucket has beside those of the store."""


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project, the working folder, with a store `mine`; the user's files are next to it.

    `shared/valid` is a store that the test changes; `shared/user` is an artifact.
    """
    lab, shared = tmp_path / "lab", tmp_path / "shared"
    lab.mkdir()
    monkeypatch.chdir(lab)
    project(lab)
    shared_run(Store.at(str(shared / "valid"), tmp_path / "cache"))
    plant(lab / "user")
    shutil.copytree(shared / "valid/artifacts/model/1f2e3d4c", shared / "user")
    own = Store.at(str(lab / "mine"), tmp_path / "cache")
    for uri in ("artifacts/own", "runs/own/steps/000001/policy"):
        with own.publish(ArtifactKey(uri, "model", "key", {})) as folder:
            (folder / "weights").write_text("weights of the user")
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    yield lab
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("kind", ["folder", "bucket"])
def test_the_store_is_pulled_and_shown_before_it_is_hostile(
    lab: Path, kind: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    valid = lab.parent / "shared/valid"
    monkeypatch.setattr(Remote, "fs", property(lambda _: Objects.of(valid, "bucket", OBJECTS)))
    address = str(valid) if kind == "folder" else "s3://bucket"
    assert main(["list", "--store", address]) == 0
    assert main(["show", RUN, "--store", address]) == 0
    assert main(["pull", RUN, "--remote", address, "--store", "mine"]) == 0
    assert "2 artifacts copied" in capfd.readouterr().out
    assert (lab / "mine" / POLICY / "weights").is_file()


@pytest.mark.parametrize("cases", [30, pytest.param(150, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", ["folder", "bucket"])
def test_a_hostile_store_leaves_all_outside_of_it_as_it_is(
    lab: Path,
    cases: int,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    draw, hostile = random.Random(SEED), lab.parent / "shared/store"
    not_trained = SimpleNamespace(run=lambda *_, **__: SimpleNamespace(returncode=1))
    monkeypatch.setattr(verification, "subprocess", not_trained)
    user = hostile.parent / "user"
    beside = {f"../user/{path.name}": path.read_bytes() for path in user.iterdir()}
    bucket = property(lambda _: Objects.of(hostile, "bucket", {**OBJECTS, **beside}))
    monkeypatch.setattr(Remote, "fs", bucket)
    address = str(hostile) if kind == "folder" else "s3://bucket"
    outside = (str(lab / "mine"), str(lab / ".agentfly"), str(hostile))
    own, before = tree(lab / "mine"), tree(lab.parent, outside)
    for number in range(cases):
        shutil.copytree(lab.parent / "shared/valid", hostile)
        changes = [draw.choice(HOSTILE) for _ in range(draw.choice((1, 1, 2)))]
        for change in changes:
            with suppress(OSError, LookupError, TypeError, ValueError):
                change(hostile, lab / "user", draw)
        what = f"case {number}: {[change.__name__ for change in changes]}"
        for words in (
            ["list", "--store", address],
            ["show", RUN, "--store", address],
            ["pull", RUN, "--remote", address, "--store", "mine"],
            ["verify", RUN, "--store", address],
        ):
            run(words)
            assert tree(lab.parent, outside) == before, f"{what}: {words}"
        assert SECRET not in "".join(capfd.readouterr()), what
        now = tree(lab / "mine")
        assert {name: now.get(name) for name in own} == own, what
        new = "".join(str(content) for _, _, content in now.values())
        assert SECRET not in new, what
        clear([*set(now) - set(own), str(hostile), str(lab / ".agentfly")])


def run(words: list[str]) -> None:
    """Run a command; a stranger's record may be refused in any way, but must not hang it."""
    signal.alarm(HANGS)
    status = 0
    with suppress(Exception):
        status = main(words)
    signal.alarm(0)
    assert status != INTERRUPTED, f"{words} hangs"


def clear(names: Sequence[str]) -> None:
    for name in names:
        if os.path.isdir(name):
            shutil.rmtree(name)
        else:
            Path(name).unlink(missing_ok=True)
    stores._opened.clear()
