"""MLflow is away for a whole run, or the run is killed: MLflow has every point once, later."""

import json
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from agentfly_core.config.loading import read
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.store.store import Store
from tests.support.killed_commands import KILLED, RUN, TINY, TRAIN, Lives, Whole, digests
from tests.support.mlflow_store import new_store

ELSEWHERE = (
    "agentfly.run_uid",
    "agentfly.run_folder",
    "agentfly.policy_uri",
    "agentfly.prefect_flow_run",
)


def tagged(store: str, name: str, uid: str) -> Run:
    """The one run of the experiment with the tag `name` = `uid` in an MLflow store."""
    client = MlflowClient(store)
    (run,) = client.search_runs(
        [client.get_experiment_by_name("tiny").experiment_id], f"tags.`{name}` = '{uid}'"
    )
    return run


def demo(store: str, folder: Path) -> Run:
    """The MLflow run of the run in a folder."""
    return tagged(
        store, "agentfly.run_uid", json.loads((folder / RUN / "run.json").read_text())["uid"]
    )


def points(store: str, run: Run) -> list[tuple[str, int, float, int]]:
    """Every point that an MLflow store has of a run."""
    client, names = MlflowClient(store), sorted(run.data.metrics)
    return [
        (n, m.step, m.value, m.timestamp)
        for n in names
        for m in client.get_metric_history(run.info.run_id, n)
    ]


def ours(tags: dict[str, str]) -> dict[str, str]:
    """Our tags, without the addresses of a run and its flow run."""
    return {
        name: value
        for name, value in tags.items()
        if name.startswith("agentfly.") and name not in ELSEWHERE
    }


def content(store: str, run: Run, tmp_path: Path) -> dict[str, Any]:
    """Content of an MLflow run, without times and addresses."""
    client = MlflowClient(store)
    tables = [
        client.download_artifacts(run.info.run_id, f.path, str(tmp_path))
        for f in artifacts(store, run)
    ]
    return {
        "params": run.data.params,
        "tags": ours(run.data.tags),
        "inputs": [item.dataset.digest for item in run.inputs.dataset_inputs],
        "points": [(name, step) for name, step, _, _ in points(store, run)],
        "tables": [json.loads(Path(table).read_text()) for table in tables],
        "versions": [
            ours(v.tags) for v in client.search_model_versions(f"run_id = '{run.info.run_id}'")
        ],
        "status": run.info.status,
    }


def artifacts(store: str, run: Run) -> list[Any]:
    return MlflowClient(store).list_artifacts(run.info.run_id, "trajectories")


def summary(folder: Path) -> dict[str, Any]:
    value: dict[str, Any] = Store.at(str(folder), folder).read_json(f"{RUN}/summary.json")
    return value


@pytest.fixture(params=["refused", "hangs"])
def away(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a server that refuses connections, or accepts them and never answers."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        if request.param == "hangs":
            server.listen(128)
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def heard(whole: Whole) -> tuple[Path, str]:
    """The folder of a run, and the MLflow store that heard of it, and of nothing else, while it
    continued.
    """
    return whole.folder, new_store(whole.folder)


@pytest.mark.long
def test_a_run_arrives_once_when_mlflow_is_back(
    begun: Path, lives: Lives, whole: Whole, heard: tuple[Path, str], away: str, tmp_path: Path
) -> None:
    end = lives.run(begun, *TRAIN, env={"MLFLOW_TRACKING_URI": away})
    assert end.code == 0, end.printed
    assert f"MLflow ({away}) lacks data: " in end.printed
    command = f"agentfly train {TINY} --run demo"
    assert f"To send the missing data: `{command}`." in end.printed
    assert digests(begun) == digests(whole.folder)

    store = new_store(begun)
    assert lives.run(begun, *TRAIN, env={"MLFLOW_TRACKING_URI": store}).code == 0
    run = demo(store, begun)
    sent = points(store, run)
    assert [step for metric, step, _, _ in sent if metric == "rollout/reward"] == [1, 2, 3]
    assert [step for metric, step, _, _ in sent if metric == "evaluate/test/success"] == [0, 3]
    assert len(set(sent)) == len(sent)
    folder, live = heard
    links = Store.at(str(begun), begun).read_json(f"{RUN}/links.json")
    assert links["mlflow_run_ids"] == [run.info.run_id]
    shown = run.data.tags["agentfly.prefect_flow_run"]
    assert shown.endswith(f"/runs/flow-run/{links['prefect_flow_run_ids'][0]}")
    assert content(store, run, tmp_path / "late") == content(
        live, demo(live, folder), tmp_path / "live"
    )

    assert lives.run(begun, *TRAIN, env={"MLFLOW_TRACKING_URI": store}).code == 0
    assert points(store, run) == sent


@pytest.mark.long
def test_a_killed_run_has_every_point_once_after_it_continued(
    begun: Path, lives: Lives, heard: tuple[Path, str], tmp_path: Path
) -> None:
    store, (folder, live) = new_store(begun), heard
    env, at = {"MLFLOW_TRACKING_URI": store}, f"publish {RUN}/steps/000003/policy"
    assert lives.run(begun, *TRAIN, env=env, at=at).code == KILLED
    assert lives.run(begun, *TRAIN, env=env).code == 0
    run, uninterrupted = demo(store, begun), demo(live, folder)
    assert content(store, run, tmp_path / "again") == content(
        live, uninterrupted, tmp_path / "live"
    )


@pytest.mark.long
def test_mlflow_has_every_part_of_a_run(heard: tuple[Path, str], tmp_path: Path) -> None:
    folder, store = heard
    run = demo(store, folder)
    has = content(store, run, tmp_path)
    data = digests(folder)[StageKeys(read(TINY).settings).prepare().uri]
    assert has["params"]["rollout.group_size"] == "4"
    assert has["params"]["site.threads"] == "1"
    assert has["inputs"] == [data[:36]]
    assert json.loads((folder / RUN / "run.json").read_text())["dataset_digest"] == data
    assert has["tags"]["agentfly.dvc_dataset"].startswith("none: ")
    assert [len(table["data"]) for table in has["tables"]] == [8]
    policy = digests(folder)[f"{RUN}/steps/000003/policy"]
    assert [(v["agentfly.policy_digest"], v["agentfly.dataset"]) for v in has["versions"]] == [
        (policy, data)
    ]
    rounds = [point for point in has["points"] if point[0] == "warm_start/train/loss"]
    assert rounds == [("warm_start/train/loss", 1), ("warm_start/train/loss", 2)]
    names = {name for name, _ in has["points"]}
    assert names >= {
        f"time/{stage}"
        for stage in ("prepare", "model", "warm_start", "rollout", "score", "update")
    }
    assert names >= {
        "evaluate/test/seconds",
        "train/tokens_per_second",
        "rollout/tokens_per_second",
    }
    sent = MlflowClient(store).download_artifacts(run.info.run_id, "summary.json", str(tmp_path))
    assert json.loads(Path(sent).read_text()) == summary(folder)


@pytest.mark.long
def test_mlflow_has_stages_outside_runs(begun: Path, lives: Lives, whole: Whole) -> None:
    shutil.copy(whole.folder / RUN / "start.json", begun / "policy.json")
    evaluate = ("evaluate", TINY, "--policy", "policy.json")
    store = new_store(begun)
    for words in (("prepare", TINY), ("warm-start", TINY), evaluate, evaluate):
        end = lives.run(begun, *words, env={"MLFLOW_TRACKING_URI": store})
        assert end.code == 0, end.printed
    runs = {run.data.tags["agentfly.stage"]: run for run in MlflowClient(store).search_runs(["1"])}
    has = {stage: {name for name, *_ in points(store, run)} for stage, run in runs.items()}
    policy = json.loads((begun / "policy.json").read_text())["digest"]
    assert runs["evaluate"].data.tags["agentfly.policy"] == policy
    assert has["prepare"] == {"time/prepare"}
    assert has["warm-start"] >= {"time/warm_start", "warm_start/train/loss"}
    assert has["evaluate"] >= {"evaluate/test/success_low", "evaluate/test/seconds"}
    assert len(MlflowClient(store).search_runs(["1"])) == 3
