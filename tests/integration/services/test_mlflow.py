import multiprocessing
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pandas as pd
import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from agentfly_core.runs.tracking import background
from agentfly_core.runs.tracking.background import Background
from agentfly_core.runs.tracking.mlflow_client import (
    DATASET,
    DIGEST,
    SUCCESS,
    MlflowRun,
    MlflowStore,
    page,
)
from tests.support.mlflow_store import new_store
from tests.support.owned_programs import serving
from tests.support.servers import free_port
from tests.support.waiting import LIMIT, until

TIME = 1763740000000
COMMAND = "agentfly train quickstart"


def own_store(folder: Path) -> MlflowStore:
    return MlflowStore.choose(folder, new_store(folder))


def opened(place: MlflowStore, uid: str = "4f1c") -> MlflowRun:
    return MlflowRun(place, "quickstart", "quickstart-1f2e3d4c", uid, TIME)


def version(digest: str, success: float, data: str = "ab") -> dict[str, str]:
    """The lineage of a policy that was evaluated on a dataset."""
    uri = {"agentfly.policy_uri": f"runs/demo/{digest}"}
    return {DIGEST: digest, SUCCESS: f"{success:.4f}", DATASET: data * 32, **uri}


def send_a_run(mlflow: MlflowRun) -> None:
    mlflow.settings({"update": {"learning_rate": 3e-4}, "steps": 2}, {})
    mlflow.tags({"agentfly.run_folder": "runs/demo"})
    mlflow.dataset("arithmetic", "artifacts/prepare/77b0", "ab" * 32, "none: not wanted")
    for step in (1, 2):
        mlflow.points({"rollout/reward": step / 10}, step, TIME + step)
        frame = pd.DataFrame({"prompt": ["What is 41+58?"], "reward": [1.0]})
        mlflow.table("trajectories", step, frame)
    mlflow.register("quickstart", version("cd", 0.91))
    mlflow.finish("FINISHED", TIME + 9)


def seen(place: MlflowStore, run_id: str) -> dict[str, Any]:
    """Content of a run in MLflow, without times."""
    client = MlflowClient(place.uri)
    run = client.get_run(run_id)
    points = [
        (m.value, m.step, m.timestamp) for m in client.get_metric_history(run_id, "rollout/reward")
    ]
    return {
        "params": run.data.params,
        "tags": run.data.tags,
        "points": sorted(points),
        "inputs": [(item.dataset.name, item.dataset.digest) for item in run.inputs.dataset_inputs],
        "tables": {
            f.path: read_table(client, run_id, f.path)
            for f in client.list_artifacts(run_id, "trajectories")
        },
        "versions": [
            (v.version, v.tags["agentfly.policy_uri"]) for v in client.search_model_versions()
        ],
        "status": run.info.status,
        "time": (run.info.start_time, run.info.end_time),
    }


def read_table(client: MlflowClient, run_id: str, path: str) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        frame = pd.read_json(client.download_artifacts(run_id, path, folder), orient="split")
    return frame.to_dict("records")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> MlflowStore:
    return own_store(tmp_path_factory.mktemp("project"))


def test_the_project_keeps_its_own_store_at_an_absolute_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    assert MlflowStore.choose(Path(".agentfly")).uri == f"sqlite:///{tmp_path}/.agentfly/mlflow.db"


def test_the_site_goes_before_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://team:5000")
    assert MlflowStore.choose(tmp_path).uri == "http://team:5000"
    assert MlflowStore.choose(tmp_path, "http://site:5000").uri == "http://site:5000"


def test_a_run_sent_twice_is_stored_once(place: MlflowStore) -> None:
    first = opened(place)
    send_a_run(first)
    once = seen(place, first.run_id)
    again = opened(place)
    send_a_run(again)
    assert again.run_id == first.run_id
    assert seen(place, first.run_id) == once
    assert once["points"] == [(0.1, 1, TIME + 1), (0.2, 2, TIME + 2)]
    assert once["inputs"] == [("arithmetic", ("ab" * 32)[:36])]
    assert once["versions"] == [(1, "runs/demo/cd")]
    assert once["tables"]["trajectories/step-000001.json"] == [
        {"prompt": "What is 41+58?", "reward": 1}
    ]
    assert (once["status"], once["time"]) == ("FINISHED", (TIME, TIME + 9))


def test_a_setting_that_a_continued_run_changed_is_a_tag(place: MlflowStore) -> None:
    mlflow = opened(place, "resumed")
    mlflow.settings({"steps": 2, "seed": 0}, {})
    opened(place, "resumed").settings({"steps": 30, "seed": 0}, {})
    data = MlflowClient(place.uri).get_run(mlflow.run_id).data
    assert data.params == {"steps": "2", "seed": "0"}
    assert data.tags["agentfly.continued.steps"] == "30"
    assert "agentfly.continued.seed" not in data.tags


def test_secrets_in_settings_and_tags_are_not_sent(
    place: MlflowStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEARCH_API_KEY", "sk-1f2e3d4c")
    mlflow = opened(place, "secret")
    mlflow.settings({"data.settings.url": "https://host/?key=sk-1f2e3d4c"}, {})
    mlflow.tags({"agentfly.store": "http://me:opensesame@host"})
    data = MlflowClient(place.uri).get_run(mlflow.run_id).data
    assert data.params == {"data.settings.url": "https://host/?key=[SEARCH_API_KEY]"}
    assert data.tags["agentfly.store"] == "http://me:[password]@host"


def test_best_has_the_highest_success_and_last_is_the_newest(
    place: MlflowStore,
) -> None:
    mlflow = opened(place, "models")
    for digest, success in (("aa", 0.7), ("bb", 0.9), ("cc", 0.8), ("bb", 0.9)):
        mlflow.register("shop", version(digest, success))
    model = MlflowClient(place.uri).get_registered_model("shop")
    assert model.aliases == {"best": 2, "last": 3}


def test_best_compares_only_policies_with_the_same_data(place: MlflowStore) -> None:
    mlflow = opened(place, "of two datasets")

    def aliases(*versions: dict[str, str]) -> dict[str, int]:
        for each in versions:
            mlflow.register("sums", each)
        return dict(MlflowClient(place.uri).get_registered_model("sums").aliases)

    assert aliases(version("aa", 0.7), version("bb", 0.9)) == {"best": 2, "last": 2}
    assert aliases(version("cc", 0.5, "cd")) == {"best": 3, "last": 3}
    assert aliases(version("dd", 0.4, "cd"), version("bb", 0.9)) == {"best": 3, "last": 4}


def test_a_refused_entry_is_named_once_and_others_are_stored(
    place: MlflowStore, caplog: pytest.LogCaptureFixture
) -> None:
    mlflow, odd = opened(place, "one refused"), cast("float", "no number")
    for step in (1, 2):
        metrics = {f"metric {number}": 0.5 for number in range(100)}
        mlflow.points({**metrics, "odd": odd}, step, TIME)
    (refused,) = [message for message in caplog.messages if "refused" in message]
    assert refused.startswith("MLflow refused 'odd' of the metrics (")
    assert MlflowClient(place.uri).get_run(mlflow.run_id).data.metrics == metrics


def test_a_batch_is_not_split_when_mlflow_does_not_answer(
    place: MlflowStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow, calls = opened(place, "outage"), list[int]()

    def unreachable(run_id: str, metrics: list[Any]) -> None:
        calls.append(len(metrics))
        raise MlflowException("Connection refused")

    monkeypatch.setattr(mlflow.client, "log_batch", unreachable)
    with pytest.raises(MlflowException, match="Connection refused"):
        mlflow.points({f"metric {number}": 0.5 for number in range(100)}, 1, TIME)
    assert calls == [100]


def start_run(state: Path, uid: str) -> None:
    place = MlflowStore.choose(state, f"sqlite:///{state}/mlflow.db")
    opened(place, uid).points({"reward": 1.0}, 1, TIME)


@pytest.mark.long
@pytest.mark.service
def test_four_processes_may_start_on_a_project_without_a_store(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=start_run, args=(tmp_path, uid)) for uid in "abcd"]
    for process in processes:
        process.start()
    for process in processes:
        process.join(LIMIT)
    assert [process.exitcode for process in processes] == [0, 0, 0, 0]
    assert len(MlflowClient(own_store(tmp_path).uri).search_runs(["1"])) == 4


@contextmanager
def served(folder: Path, port: int, address: Path) -> Iterator[None]:
    """A real MLflow server."""
    words = [
        "server",
        "--backend-store-uri",
        f"sqlite:///{folder}/server.db",
        "--artifacts-destination",
        str(folder),
    ]
    log, started = folder / f"{port}.log", "Application startup complete"
    command = [
        sys.executable,
        "-m",
        "mlflow",
        *words,
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--workers",
        "1",
    ]
    log.unlink(missing_ok=True)
    with serving(command, address, log, {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}) as process:
        until(lambda: started in log.read_text(), process)
        yield


def test_missed_entries_arrive_once_after_an_outage(
    tmp_path: Path,
    service_address: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for limit in ("SERVER", "OUTAGE"):  # a server that came back may be slow here
        monkeypatch.setattr(background, limit, LIMIT)
    place = MlflowStore.choose(tmp_path, f"http://127.0.0.1:{(port := free_port())}")
    runs, points = list[MlflowRun](), list[int]()

    def send() -> None:
        runs[:] = [mlflow := opened(place)]
        send_a_run(mlflow)
        for number in points:
            mlflow.points({"rollout/reward": number / 10}, number, TIME + number)

    def missing(by: Background) -> str:
        by.finish()
        return capsys.readouterr().out.rstrip()

    sending, again = (Background(place, send, COMMAND) for _ in range(2))
    assert "Connection refused" in missing(sending)
    with served(tmp_path, port, service_address("mlflow")):
        assert missing(sending) == ""
        charts = page(place, runs[0].run_id, place.uri)
        assert charts.startswith(f"{place.uri}/#/experiments/1/runs/{runs[0].run_id}/")
        once = seen(place, runs[0].run_id)

    points.append(3)
    assert missing(sending).endswith(f"To send the missing data: {COMMAND}.")
    with served(tmp_path, port, service_address("mlflow")):
        assert missing(sending) == missing(again) == ""
        twice = seen(place, runs[0].run_id)
    assert twice.pop("points") == [*once.pop("points"), (0.3, 3, TIME + 3)]
    assert twice == once
    assert sorted(once["tables"]) == [
        "trajectories/step-000001.json",
        "trajectories/step-000002.json",
    ]
