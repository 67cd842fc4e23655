"""Artifacts are whole or not there."""

import json
import os
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from agentfly_core.store import store as store_module
from agentfly_core.store.artifact import ArtifactKey, Pointer
from agentfly_core.store.manifest import verify
from agentfly_core.store.store import Store
from agentfly_core.system.formats.checksummed_json import Damaged
from agentfly_core.system.process import Owner
from tests.support.clocks import set_clock

SLOT = ArtifactKey("runs/demo/steps/000001/scored", "score", "key-1", {"rollout-000": "d0"})


@pytest.fixture()
def store(tmp_path):
    return Store.at(str(tmp_path / "store"), tmp_path / "cache")


def publish(store, target=SLOT, text="one"):
    with store.publish(target) as folder:
        (folder / "scores.txt").write_text(text)
        (folder / "metrics.json").write_text(str(id(folder)))
    return store.artifact(target.uri)


def test_an_artifact_is_found_under_its_key_only(store):
    artifact = publish(store)
    assert store.find(SLOT) == artifact
    assert store.find(ArtifactKey(SLOT.uri, "score", "key-2", {})) is None
    assert (store.open(artifact) / "scores.txt").read_text() == "one"


def test_a_stage_that_fails_leaves_nothing(store):
    with pytest.raises(RuntimeError), store.publish(SLOT) as folder:
        (folder / "scores.txt").write_text("half")
        raise RuntimeError("reward service gone")
    assert store.find(SLOT) is None
    assert list(store.root.rglob("*.txt")) == []


def test_a_changed_byte_is_noticed_and_recomputed(store):
    artifact = publish(store)
    path = store.root / SLOT.uri / "scores.txt"
    path.write_text("onE")
    store_module._opened.clear()
    with pytest.raises(Damaged, match=r"scores\.txt"):
        store.open(artifact)
    assert store.find(SLOT) is None
    publish(store)
    assert store.find(SLOT) == artifact


def test_a_process_opens_its_own_artifacts_without_a_check(store, monkeypatch):
    hashed = []
    sha256 = store_module.files.sha256
    monkeypatch.setattr(
        store_module.files, "sha256", lambda path: hashed.append(path) or sha256(path)
    )
    artifact = publish(store)
    written = len(hashed)
    store.open(artifact)
    assert len(hashed) == written > 0
    store_module._opened.clear()  # as in another process
    store.open(artifact)
    assert len(hashed) == 2 * written


def test_a_folder_without_its_manifest_is_no_artifact(store):
    publish(store)
    (store.root / SLOT.uri / "MANIFEST.json").unlink()
    assert store.find(SLOT) is None
    with pytest.raises(Damaged, match="not published completely"):
        verify(store.root / SLOT.uri)


def test_the_digest_names_content_and_not_how_long_it_took(store, tmp_path):
    other = Store.at(str(tmp_path / "other"), tmp_path / "cache")
    assert publish(store).digest == publish(other).digest
    assert (
        publish(other, ArtifactKey("runs/x", "score", "key-2", {}), "one").digest
        != publish(store).digest
    )


def test_the_second_publisher_keeps_the_first_artifact(store):
    first = publish(store)
    before = (store.root / SLOT.uri / "metrics.json").read_text()
    with store.publish(SLOT) as folder:
        (folder / "scores.txt").write_text("one")
    assert store.artifact(SLOT.uri) == first
    assert (store.root / SLOT.uri / "metrics.json").read_text() == before


def test_threads_that_publish_the_same_artifact_do_not_meet(store):
    with store.publish(SLOT) as folder:
        (folder / "scores.txt").write_text("one")
        with ThreadPoolExecutor() as threads:
            assert threads.submit(publish, store).result() == store.artifact(SLOT.uri)
    assert (store.open(store.artifact(SLOT.uri)) / "scores.txt").read_text() == "one"


def test_unfinished_work_of_dead_local_processes_is_removed(store):
    here, there = (
        Owner(host, 999999, 1.0, "", 1).mark for host in (socket.gethostname(), "another machine")
    )
    dead, unknown = (
        store.root / f"runs/demo/steps/000002/.tmp-scored-{mark}" for mark in (here, there)
    )
    dead.mkdir(parents=True)
    unknown.mkdir()
    with store.publish(SLOT) as folder:
        (folder / "scores.txt").write_text("one")
        assert store.sweep("runs/demo") == 1
        assert folder.is_dir()
    assert not dead.exists()
    assert unknown.exists()


def test_a_clock_change_keeps_the_work_of_living_processes(store, monkeypatch):
    with store.publish(SLOT) as folder:
        set_clock(monkeypatch, 3600)
        assert store.sweep("runs/demo") == 0
        (folder / "scores.txt").write_text("one")
    assert store.find(SLOT) == store.artifact(SLOT.uri)


@pytest.mark.parametrize("name", [".tmp-foo", ".tmp-", ".tmp-\udcff"], ids=ascii)
def test_foreign_temporary_files_stay(store, name):
    strange = store.root / "runs/demo" / name
    (strange / ".tmp-inner").mkdir(parents=True)
    assert store.sweep("runs/demo") == 0
    assert strange.is_dir()


def test_a_truncated_manifest_is_recomputed(store):
    artifact = publish(store)
    manifest = store.root / SLOT.uri / "MANIFEST.json"
    manifest.write_text(manifest.read_text()[:40])
    store_module._opened.clear()
    assert store.find(SLOT) is None
    assert publish(store) == artifact
    assert store.find(SLOT) == artifact


def test_the_manifest_lists_the_inputs(store):
    publish(store)
    manifest = json.loads((store.root / SLOT.uri / "MANIFEST.json").read_text())
    assert manifest["inputs"] == {"rollout-000": "d0"}
    assert manifest["files"]["scores.txt"]["size"] == 3
    assert set(manifest["revision"]) == {"commit", "dirty"}


@pytest.mark.parametrize(
    ("original", "damage"),
    [('"d0"', '"d8"'), ('"score"', '"scobe"'), ('"size": 3', '"size": 1'), ('"files"', '"fkles"')],
)
def test_a_changed_manifest_is_named_and_recomputed(store, caplog, original, damage):
    artifact = publish(store)
    manifest = store.root / SLOT.uri / "MANIFEST.json"
    changed = manifest.read_text().replace(original, damage)
    assert changed != manifest.read_text()
    manifest.write_text(changed)
    store_module._opened.clear()
    with pytest.raises(Damaged, match=rf"^{manifest} is damaged"):
        store.artifact(SLOT.uri)
    assert not store.holds(SLOT.uri)
    assert store.find(SLOT) is None
    assert caplog.records[-1].getMessage().startswith(f"{manifest} is damaged")
    assert publish(store) == artifact
    assert store.find(SLOT) == artifact


def test_one_file_of_an_artifact_is_checked_by_itself(store):
    artifact = publish(store)
    assert isinstance(store.part(artifact, "metrics.json"), int)
    assert store.part(artifact, "adapter.json") is None
    (store.root / SLOT.uri / "metrics.json").write_text("0")
    with pytest.raises(Damaged, match=r"metrics\.json .*MANIFEST\.json"):
        store.part(artifact, "metrics.json")
    with pytest.raises(Damaged, match="expected 9f2c"):
        store.part(Pointer(SLOT.uri, "9f2c"), "metrics.json")


@pytest.mark.parametrize(
    "uri",
    [
        "../precious",
        "/no/folder",
        "runs/../x",
        "runs//x",
        "runs/./x",
        "",
        "conf/x",
        "runs/a\0",
        "runs/\x1b",
    ],
)
def test_a_uri_that_leads_out_of_the_store_is_refused(store, uri):
    for use in (store.get, store.names, store.remove, store.path):
        with pytest.raises(Damaged, match=r"^.*/store: got the (uri|name)"):
            use(uri)
    with pytest.raises(Damaged, match="got the"), store.publish(ArtifactKey(uri, "model", "k", {})):
        pass


@pytest.mark.parametrize("part", ["runs", "runs/demo/steps/000001/scored"])
def test_a_link_on_the_way_to_an_artifact_is_refused(store, tmp_path, part):
    artifact = publish(store)
    (store.root / part).rename(tmp_path / "elsewhere")
    (store.root / part).symlink_to(tmp_path / "elsewhere")
    store_module._opened.clear()
    with pytest.raises(Damaged, match=f"^{store.root / part} is a symbolic link"):
        store.open(artifact)


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda path: path.symlink_to("/dev/zero"), "is not a regular file"),
        (os.mkfifo, "is not a regular file"),
        (lambda path: path.write_text("two"), "does not belong to this folder"),
    ],
    ids=["link", "pipe", "file"],
)
def test_an_artifact_with_an_unlisted_file_is_refused(store, make, kind):
    artifact = publish(store)
    make(store.root / SLOT.uri / "more.txt")
    store_module._opened.clear()
    with pytest.raises(Damaged, match=rf"more\.txt {kind}"):
        store.open(artifact)


def test_a_folder_that_does_not_verify_is_set_aside(store):
    folder = store.root / SLOT.uri
    folder.mkdir(parents=True)
    (folder / "notes.txt").write_text("of the user")
    publish(store)
    kept = folder.with_name(".damaged-scored-1")
    assert (kept / "notes.txt").read_text() == "of the user"
    assert store.names("runs/demo/steps/000001") == ["scored"]


@pytest.mark.parametrize(
    "files",
    [
        {"../../x": {"sha256": "9f2c", "size": 1}},
        {"/etc/passwd": {"sha256": "9f2c", "size": 1}},
        {"scores.txt": {"sha256": "9f2c", "size": -1}},
        {"scores.txt": {"sha256": "9f2c", "size": True}},
        [],
    ],
)
def test_a_sealed_manifest_of_a_stranger_is_refused(store, files):
    publish(store)
    manifest = {"stage": "score", "key": "key-1", "inputs": {}, "files": files}
    store.write_json(f"{SLOT.uri}/MANIFEST.json", manifest)
    with pytest.raises(Damaged, match=r"MANIFEST\.json is damaged: files"):
        store.get(SLOT.uri)
