"""Runs and artifacts on object storage: a real S3 server, a process of its own on loopback."""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import boto3
import httpx
import pytest

from agentfly_core.config.experiment import Settings
from agentfly_core.config.site import Site
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.run_policies import final_policy
from agentfly_core.pipeline.loop.library import load_experiment, train
from agentfly_core.runs.run import opened
from agentfly_core.store.artifact import ArtifactKey
from agentfly_core.store.lease import holder_in, refuse_if_held, remote_lock
from agentfly_core.store.lock import Locked, LockLost
from agentfly_core.store.manifest import MANIFEST
from agentfly_core.store.object_storage import Refused, Remote
from agentfly_core.store.store import Store
from agentfly_core.system.formats.checksummed_json import Damaged
from agentfly_core.system.progress import Progress, listening
from flows.cli import sharing
from tests.support import experiments
from tests.support.clocks import set_clock
from tests.support.killed_commands import KILLED, RUN, TINY, TRAIN, Lives, Whole, digests
from tests.support.owned_programs import serving
from tests.support.project import Project
from tests.support.waiting import until

BUCKET = "s3://agents"
ARITHMETIC = "agentfly_core.datasets.arithmetic:arithmetic"
SLOT = ArtifactKey("runs/demo/steps/000001/scored", "score", "key-1", {})
HOLD = """
import sys
from agentfly_core.store.lease import remote_lock
from agentfly_core.store.object_storage import Refused, Remote
with remote_lock(Remote(sys.argv[1]), "runs/demo"):
    print("held", flush=True); sys.stdin.read()
"""


@pytest.fixture(scope="session")
def s3(
    service_address: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, str]]:
    """Environment variables for an S3 server with the bucket `agents`."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    env = {"AWS_ENDPOINT_URL": url, "AWS_DEFAULT_REGION": "us-east-1"}
    env |= {"AWS_ACCESS_KEY_ID": "agents", "AWS_SECRET_ACCESS_KEY": "agents"}
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with serving(command, service_address("s3"), tmp_path_factory.mktemp("s3") / "log") as process:
        until(lambda: listens(url), process)
        client = boto3.client(
            "s3",
            endpoint_url=url,
            aws_access_key_id="agents",
            aws_secret_access_key="agents",
            region_name="us-east-1",
        )
        client.create_bucket(Bucket="agents")
        yield env


def listens(url: str) -> bool:
    try:
        return httpx.get(url).status_code < 500
    except httpx.TransportError:
        return False


@pytest.fixture
def reached(s3: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets this very process reach the server."""
    for name, value in s3.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("reached")
def test_reads_and_writes_name_a_missing_bucket() -> None:
    gone = Remote("s3://nobody/exp")
    for ask in (
        gone.content,
        gone.names,
        gone.tagged,
        lambda uri: gone.write(uri, ""),
        lambda uri: gone.create(uri, ""),
    ):
        with pytest.raises(Refused, match=r"s3://nobody/exp: .*bucket"):
            ask("runs")


def digests_at(store: Store) -> dict[str, str]:
    """Names of the artifacts in a store on object storage."""
    assert store.remote
    where = f"{store.remote.path('')}"
    files = [str(path).removeprefix(where) for path in store.remote.fs.find(where)]
    names = [path.removesuffix(f"/{MANIFEST}") for path in files if path.endswith(f"/{MANIFEST}")]
    return {name: store.artifact(name).digest for name in sorted(names)}


def test_a_run_in_a_bucket_continues_on_another_machine(
    tmp_path: Path, lives: Lives, whole: Whole, s3: Mapping[str, str], reached: None
) -> None:
    here, there = tmp_path / "one", tmp_path / "another"
    end = lives.run(here, *TRAIN, "--store", f"{BUCKET}/exp", env=s3, at="update 2 1")
    assert end.code == KILLED, end.printed
    end = lives.run(there, *TRAIN, "--store", f"{BUCKET}/exp", env=s3)
    assert end.code == 0, end.printed
    assert "rollout 1 8" not in end.moments
    assert digests_at(Store.at(f"{BUCKET}/exp", tmp_path / "cache")) == digests(whole.folder)
    assert not (there / RUN).exists()


def test_a_policy_is_shared_by_a_bucket(tmp_path: Path, reached: None) -> None:
    with opened(experiments.experiment(tmp_path), "demo") as run:
        with run.store.publish(ArtifactKey(run.layout.step(1).policy, "update", "key", {})) as made:
            (made / "model.safetensors").write_text("1")
    there = str(tmp_path / "there")
    sharing.push("demo", remote=f"{BUCKET}/shared", store_uri=run.store.uri)
    sharing.pull("demo", remote=f"{BUCKET}/shared", store_uri=there)
    fetched = Store.at(there, tmp_path)
    assert final_policy(fetched, "demo") == final_policy(run.store, "demo")
    assert fetched.read_json("runs/demo/run.json")["uid"] == run.uid


@pytest.mark.long
def test_dvc_and_agentfly_share_an_experiment_by_one_bucket(
    tmp_path: Path, s3: Mapping[str, str], prefect_api: str
) -> None:
    one, other = (
        Project.clone(tmp_path / name, PREFECT_API_URL=prefect_api, **s3) for name in ("one", "two")
    )
    for project in (one, other):
        project.run("dvc", "remote", "add", "--default", "shared", f"{BUCKET}/dvc")
    one.run("dvc", "repro")
    one.run("dvc", "push")
    (run,) = os.listdir(one.root / "runs")
    assert f"{BUCKET}/dvc/agentfly now has runs/" in one.run("agentfly", "push", run)

    shutil.copy(one.root / "dvc.lock", other.root)
    other.run("dvc", "pull")
    assert "Running stage" not in other.run("dvc", "repro")
    other.run("agentfly", "pull", run)
    named = json.loads((other.root / "results/tiny/policy.json").read_text())
    store = Store.at(str(other.root), tmp_path / "cache")
    assert store.artifact(named["uri"]).digest == named["digest"]


def test_an_artifact_with_a_cut_upload_is_recomputed(tmp_path: Path, reached: None) -> None:
    one, two = (Store.at(f"{BUCKET}/cut", tmp_path / name) for name in ("one", "two"))
    with one.publish(SLOT) as folder:
        (folder / "scores.parquet").write_text("scores")
    assert one.remote
    one.remote.fs.rm_file(one.remote.path(f"{SLOT.uri}/{MANIFEST}"))
    assert two.find(SLOT) is None
    with pytest.raises(FileNotFoundError, match="Nothing is published"):
        two.artifact(SLOT.uri)

    with two.publish(SLOT) as folder:
        (folder / "scores.parquet").write_text("scores")
    artifact = Store.at(f"{BUCKET}/cut", tmp_path / "three").find(SLOT)
    assert artifact == two.artifact(SLOT.uri)


def test_a_changed_object_is_noticed_at_download(tmp_path: Path, reached: None) -> None:
    one, two = (Store.at(f"{BUCKET}/changed", tmp_path / name) for name in ("one", "two"))
    with one.publish(SLOT) as folder:
        (folder / "scores.parquet").write_text("scores")
    assert one.remote
    one.remote.write(f"{SLOT.uri}/scores.parquet", "sc0res")
    assert two.find(SLOT) is None


@pytest.mark.parametrize(
    "damaged",
    [
        lambda text: text[:40],
        lambda text: "\0" * len(text),
        lambda text: text.replace("rollout-000", "rollout-001"),
        lambda text: text.replace('"inputs"', '"inpuds"'),
    ],
    ids=["cut", "zeroed", "another input", "another field"],
)
def test_a_damaged_manifest_in_a_bucket_is_named_and_replaced(
    damaged: Callable[[str], str],
    tmp_path: Path,
    reached: None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    slot = replace(SLOT, inputs={"rollout-000": "d0"})
    store = Store.at(f"{BUCKET}/manifest", tmp_path / "one")
    with store.publish(slot) as folder:
        (folder / "scores.parquet").write_text("scores")
    whole = store.artifact(slot.uri)
    assert store.remote
    manifest = f"{slot.uri}/{MANIFEST}"
    written = store.remote.content(manifest)
    assert written
    store.remote.write(manifest, damaged(written.decode()))

    other = Store.at(f"{BUCKET}/manifest", tmp_path / "two")
    with pytest.raises(Damaged, match=rf"^{store.uri}/{manifest} is damaged"):
        other.get(slot.uri)
    assert other.find(slot) is None
    assert caplog.records[-1].getMessage().startswith(f"{store.uri}/{manifest} is damaged")
    with other.publish(slot) as folder:
        (folder / "scores.parquet").write_text("scores")
    assert store.find(slot) == whole


def test_a_working_copy_that_was_damaged_is_fetched_again(tmp_path: Path, reached: None) -> None:
    one, two = (Store.at(f"{BUCKET}/copied", tmp_path / name) for name in ("one", "two"))
    with one.publish(SLOT) as folder:
        (folder / "scores.parquet").write_text("scores")
    shutil.copytree(one.root, two.root)
    (two.root / SLOT.uri / "scores.parquet").write_text("sc0res")
    artifact = two.find(SLOT)
    assert artifact == one.find(SLOT)
    assert artifact
    assert (two.open(artifact) / "scores.parquet").read_text() == "scores"


def test_the_result_of_another_machine_replaces_a_working_copy(
    tmp_path: Path, reached: None
) -> None:
    one, two = (Store.at(f"{BUCKET}/results", tmp_path / name) for name in ("one", "two"))
    for store, text in ((one, "scores"), (two, "scores of samples that differ")):
        with store.publish(SLOT) as folder:
            (folder / "scores.parquet").write_text(text)
    artifact = one.find(SLOT)
    assert artifact
    assert (one.open(artifact) / "scores.parquet").read_text() == "scores of samples that differ"


def test_a_run_on_object_storage_has_one_writer_until_that_dies(
    tmp_path: Path, reached: None
) -> None:
    remote = Remote(f"{BUCKET}/locked")
    store = Store(tmp_path, remote)
    command = [sys.executable, "-c", HOLD, remote.uri]
    with subprocess.Popen(command, stdin=-1, stdout=-1, env=os.environ) as first:
        assert first.stdout and first.stdout.readline() == b"held\n"
        with pytest.raises(Locked, match=f"held by process {first.pid}"):
            refuse_if_held(store, "runs/demo")
        assert holder_in(store, "runs/demo").startswith(f"process {first.pid} on ")
        with (
            pytest.raises(Locked, match=f"held by process {first.pid}"),
            remote_lock(remote, "runs/demo"),
        ):
            pass
        first.kill()
    with remote_lock(remote, "runs/demo"):
        assert holder_in(store, "runs/demo").startswith(f"process {os.getpid()} on ")


def test_a_process_that_lost_its_run_stops_writing(
    tmp_path: Path, reached: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentfly_core.store.lease.EXPIRY", 0)
    store = Store.at(f"{BUCKET}/taken", tmp_path)
    assert store.remote
    with remote_lock(store.remote, "runs/demo"):
        store.write_json("runs/demo/run.json", {"seed": 0})
        content, tag = store.remote.tagged("runs/demo/lock.json") or (b"", "")
        held = json.loads(content)
        elsewhere = held | {"owner": held["owner"] | {"host": "another"}}
        assert store.remote.replace("runs/demo/lock.json", json.dumps(elsewhere), tag)
        with remote_lock(Remote(store.uri), "runs/demo"):
            with pytest.raises(LockLost, match="no longer owns"), store.publish(SLOT) as folder:
                (folder / "scores.parquet").write_text("scores")
            with pytest.raises(LockLost):
                store.write_json("runs/demo/run.json", {"seed": 1})
            with pytest.raises(LockLost):
                store.remove("runs/demo")
    assert store.read_json("runs/demo/run.json") == {"seed": 0}
    assert store.get(SLOT.uri) is None


@pytest.mark.long
def test_the_worker_of_a_session_that_lost_its_run_stops_writing(
    tmp_path: Path, reached: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AGENTFLY_SAMPLER", "transformers")
    monkeypatch.setenv("AGENTFLY_WORKERS", "1")
    here = load_experiment(TINY, "update=none", "warm_start=null", store=f"{BUCKET}/workers")
    remote = here.store.remote
    assert remote

    def take_over(progress: Progress) -> None:
        content, tag = remote.tagged("runs/demo/lock.json") or (b"", "")
        if progress.stage == "evaluate":
            elsewhere = content.decode().replace(f'"pid": {os.getpid()}', '"pid": 999999')
            remote.replace("runs/demo/lock.json", elsewhere, tag)

    with pytest.raises(LockLost), listening(take_over):
        train(here, "demo")
    # the takeover is during the first of two shards
    assert not any(name.endswith("/test/rollout-001") for name in digests_at(here.store))


def test_a_run_that_is_refused_leaves_nothing_on_object_storage(
    tmp_path: Path, reached: None
) -> None:
    store, data = (
        Store.at(f"{BUCKET}/refused", tmp_path),
        {"use": ARITHMETIC, "train": 8, "test": 4},
    )
    settings = Settings(
        model="run:base@2", data=data, rewards={"agentfly_core.rewards.exact:exact": 1.0}, steps=2
    )
    experiment = Experiment.of("tiny", settings, {}, Site(), store)
    with (
        pytest.raises(ValueError, match=r"'base' .*policy"),
        opened(experiment, "demo"),
    ):
        pass
    experiment = experiment.on(settings.model_copy(update={"model": "nano:calculator"}))
    with pytest.raises(ValueError, match="no such model"), opened(experiment, "demo"):
        raise ValueError("no such model")
    assert store.remote and store.remote.fs.find(store.remote.path("")) == []
    assert store.names("runs") == list((tmp_path / "runs").glob("*")) == []


def test_object_ages_use_the_clock_of_the_store(
    reached: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = Remote(f"{BUCKET}/aged")
    assert remote.create("lock.json", "mine")
    set_clock(monkeypatch, 300)
    assert 0 <= remote.age("lock.json") < 60


def test_only_one_of_two_concurrent_writers_succeeds(reached: None) -> None:
    remote = Remote(f"{BUCKET}/raced")
    assert [remote.create("lock.json", text) for text in ("mine", "yours")] == [True, False]
    content = remote.tagged("lock.json")
    assert content and content[0] == b"mine"
    assert [remote.replace("lock.json", text, content[1]) for text in ("mine again", "yours")] == [
        True,
        False,
    ]
    assert remote.content("lock.json") == b"mine again"
