"""Output of the commands that need no run."""

from pathlib import Path

import pytest

from agentfly_core.config import loading
from agentfly_core.config.import_path import load
from agentfly_core.config.site import Site
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.models.pretrained import WrongFiles
from agentfly_core.pipeline.stop_conditions import GateClosed
from agentfly_core.runs.run import opened
from agentfly_core.runs.run_request import RunRequest
from agentfly_core.store.store import Store
from agentfly_core.system.formats.checksummed_json import Damaged
from agentfly_core.system.service import ServiceLost
from flows.__main__ import main
from flows.local.display import show_places, show_summary
from flows.local.state_dirs import Places
from flows.orchestration import message, next_step
from flows.reporting import COMPLETE, state_of
from tests.support.experiments import SUMMARY
from tests.support.judged_night import played_night

TINY = """
model: nano:calculator
data: {use: "agentfly_core.datasets.arithmetic:arithmetic", train: 64, test: 16}
rewards: {"agentfly_core.rewards.exact:exact": 1.0}
steps: 2
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project folder, the working directory, with one experiment and a site of its own."""
    (tmp_path / "conf/site").mkdir(parents=True)
    (tmp_path / "conf/tiny.yaml").write_text(TINY)
    (tmp_path / "conf/site/lab.yaml").write_text("sampler: transformers\ntoken_budget: 4096\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


@pytest.mark.parametrize("command", [["config", "tiny"], ["list"]], ids=["config", "list"])
def test_a_command_that_only_reads_writes_nothing(project: Path, command: list[str]) -> None:
    before = {*project.rglob("*")}
    assert main(command) == 0
    assert {*project.rglob("*")} == before


def test_config_shows_settings_and_site_with_their_origins(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AGENTFLY_RANKS", "2")
    assert main(["config", "tiny", "seed=3", "--site", "lab", "--store", "elsewhere"]) == 0
    rows = [
        [cell.strip() for cell in line.split("│")] for line in capsys.readouterr().out.splitlines()
    ]
    for row in (
        ["steps", "2", "conf/tiny.yaml"],
        ["seed", "3", "override"],
        ["rollout.group_size", "8", "default"],
        ["site.name", '"lab"', "--site"],
        ["site.sampler", '"transformers"', "conf/site/lab.yaml"],
        ["site.ranks", "2", "AGENTFLY_RANKS"],
        ["site.store", '"elsewhere"', "--store"],
        ["site.zero_stage", "1", "default"],
    ):
        assert row in rows


def test_config_shows_chat_services_with_their_origin(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service = 'endpoints: {sage: {url: "http://127.0.0.1:9/v1", model: wise}}\n'
    (project / "conf/site/chats.yaml").write_text(service)
    assert main(["config", "tiny", "--site", "chats"]) == 0
    rows = [
        [cell.strip() for cell in line.split("│")] for line in capsys.readouterr().out.splitlines()
    ]
    assert ["site.endpoints.sage.model", '"wise"', "conf/site/chats.yaml"] in rows


def test_a_run_names_its_mlflow_and_prefect_with_the_reason(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://someone:secret@mlflow.example")
    read = loading.read("tiny")
    experiment = Experiment.of("tiny", read.settings, read.origin, Site(), Store.at(".", project))
    places = Places(project / ".agentfly", "", "/home/user/.prefect (PREFECT_HOME is set)")
    show_places(places, experiment.site.mlflow_tracking_uri)
    assert capsys.readouterr().out == (
        "Prefect: /home/user/.prefect (PREFECT_HOME is set)\n"
        "MLflow: https://someone:[password]@mlflow.example (MLFLOW_TRACKING_URI)\n"
    )


def test_the_end_of_a_run_names_another_store(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for store, more in ((".", ""), ("elsewhere", f" --store {project}/elsewhere")):
        show_summary(Store.at(store, project), SUMMARY)
        lines = capsys.readouterr().out.splitlines()
        assert [line.rstrip() for line in lines[-3:]] == [
            f"MLflow: agentfly open mlflow quickstart-1f2e3d4c{more}",
            "",
            f"Prefect: agentfly open prefect quickstart-1f2e3d4c{more}",
        ]


def test_a_run_is_opened_at_the_mlflow_of_its_site(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store.at("elsewhere", project)
    store.write_json("runs/mine/run.json", {"site": {"mlflow_tracking_uri": "http://127.0.0.1:9"}})
    store.write_json("runs/mine/links.json", {"mlflow_run_ids": ["5f0e"]})
    assert main(["open", "mlflow", "mine", "--store", "elsewhere"]) == 2
    start = (
        "agentfly: MLflow at http://127.0.0.1:9 (mlflow_tracking_uri of the site) "
        "does not show the run 5f0e: "
    )
    assert capsys.readouterr().err.startswith(start)


@pytest.fixture
def finished(project: Path) -> Store:
    """The run `base`, finished and complete in MLflow."""
    read, store = loading.read("tiny"), Store.at(".", project)
    with opened(Experiment.of("tiny", read.settings, read.origin, Site(), store), "base") as run:
        run.link(COMPLETE, state_of(RunRequest(run.experiment, "base")))
        with store.publish(StageKeys(run.settings).prepare()) as folder:
            (folder / "problems").write_text("")
    store.write_json("runs/base/summary.json", {**SUMMARY, "run": "base", "steps": 2})
    return store


@pytest.mark.usefixtures("finished")
def test_a_finished_run_is_refused_with_other_settings_by_key(
    capsys: pytest.CaptureFixture[str],
) -> None:
    other = ["update.learning_rate=3e-4", "update.epochs=2", "evaluate.every=1"]
    assert main(["train", "tiny", "--run", "base", *other]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == (
        "agentfly: The run 'base' was started with other settings:\n"
        "  update.epochs: 1 -> 2\n"
        "  update.learning_rate: 1e-06 -> 0.0003\n"
        "Restore these settings, or start another run with --run NAME.\n"
    )


def test_a_finished_run_allows_changes_of_resumable_settings(
    finished: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    before = finished.read_json("runs/base/run.json")
    assert main(["train", "tiny", "--run", "base", "log_trajectories_every=2"]) == 0
    assert capsys.readouterr().out.startswith("base: 2 steps of quickstart")
    assert finished.read_json("runs/base/run.json") == before


def test_a_finished_run_of_other_data_is_refused(
    finished: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record = finished.read_json("runs/base/run.json")
    finished.write_json("runs/base/run.json", {**record, "dataset_digest": "9f2c"})

    def refuse(*_: object) -> None:
        raise ValueError("the flow compares the data")

    monkeypatch.setattr("flows.cli.training.trained", refuse)
    assert main(["train", "tiny", "--run", "base"]) == 2
    assert "the flow compares the data" in capsys.readouterr().err


def test_a_run_missing_in_mlflow_is_named_with_the_sync_command(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    read = loading.read("tiny")
    with opened(
        Experiment.of("tiny", read.settings, read.origin, Site(), Store.at(".", project)),
        "mine",
    ):
        pass
    assert main(["open", "mlflow", "mine"]) == 2
    assert capsys.readouterr().err == (
        "agentfly: mlflow does not have the run mine, because mlflow was not reachable. To send "
        "the run: agentfly train tiny --run mine\n"
    )
    assert main(["open", "prefect", "mien"]) == 2
    assert (
        f"There is no run 'mien' in {project}; `agentfly list` shows all runs. Did you mean 'mine'?"
        in capsys.readouterr().err
    )
    assert main(["open", "prefect", "../mine"]) == 2
    assert capsys.readouterr().err.startswith(f"agentfly: There is no run '../mine' in {project}; ")


def test_an_error_message_has_the_line_of_the_users_code(
    project: Path,
) -> None:
    (project / "mine.py").write_text("def years(text):\n    return int(text)\n")
    years = load("mine:years")
    line = f"{project}/mine.py:2 in years"
    for mistake, expected in (
        (
            "soon",
            f"invalid literal for int() with base 10: 'soon'\nThe error was raised at {line}.",
        ),
        (
            None,
            "int() argument must be a string, a bytes-like object or a real number, not 'NoneType'",
        ),
    ):
        try:
            years(mistake)
        except (ValueError, TypeError) as error:
            error.__traceback__ = (
                error.__traceback__ and error.__traceback__.tb_next
            )  # without the frame of this test
            assert message(error).endswith(expected)
            assert ("File" in message(error)) is isinstance(error, TypeError)
    assert message(TimeoutError()) == "TimeoutError, without a message"
    assert message(ValueError("There is no run 'x'.")) == "There is no run 'x'."


def test_a_refusal_offers_no_command_to_continue() -> None:
    for refusal in (ValueError("cannot be trained"), WrongFiles("1 missing"), GateClosed("9 of 9")):
        expected = "The same command fails again until this error is corrected."
        assert next_step(refusal, lambda: "agentfly train tiny") == expected
    for other in (Damaged("policy"), ServiceLost("vllm died"), OSError(28, "full"), TypeError()):
        assert next_step(other, lambda: "agentfly train tiny") == "To continue: agentfly train tiny"


def test_the_report_of_a_night_is_shown_and_written(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    read = loading.read("tiny", ["rollout.shard=64"])
    store = Store.at(str(project), project)
    experiment = Experiment.of("tiny", read.settings, read.origin, Site(), store)
    metrics = {"rollout/reward": 0.5, "rollout/avg_sampled_tokens": 4.0}
    night = "nightly-2026-11-21"
    played_night(experiment, night, lambda i: ("7", 0.0), lambda i: ("8", 1.0), [metrics, metrics])
    assert main(["report", night]) == 0
    printed, page = capsys.readouterr().out, project / f"runs/{night}/report.md"
    assert f"{night} of tiny: promoted" in printed
    assert f"This report is the file {page}." in printed
    assert "| tokens sampled to train on | 64 |" in page.read_text()


def test_the_report_of_a_missing_night_is_refused(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", "nightly-2026-11-21"]) == 2
    assert "expected a finished nightly run in" in capsys.readouterr().err


def test_config_shows_only_what_differs_from_the_defaults(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AGENTFLY_THREADS")
    changes = ["seed=0", "steps=3", "rollout.problems=8", "evaluate.every=0"]
    assert main(["config", "tiny", *changes, "--site", "lab", "--changed"]) == 0
    printed = capsys.readouterr()
    *table, last = printed.out.splitlines()
    rows = [line.split("│")[0].strip() for line in table[2:]]
    assert {*rows} - {"site.sampler"} == {
        "model",
        "data.use",
        "data.train",
        "data.test",
        "rewards.agentfly_core.rewards.exact:exact",
        "steps",
        "rollout.problems",
        "site.name",
        "site.token_budget",
    }
    assert printed.err == ""
    assert last == "This can be trained."


def test_config_shows_a_mixture_s_changes_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "mixture", "--changed"]) == 0
    printed = capsys.readouterr().out
    assert "tasks.office.data.use" in printed
    assert "data.tasks" not in printed


def test_config_refuses_a_missing_run(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "tiny", "model=run:mine@3"]) == 2
    assert "The run 'mine' has published no policy" in capsys.readouterr().err


def test_config_prints_remarks_on_standard_error(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "my_quiet_tools.py").write_text(
        "from agentfly_core import tool\n\n@tool\ndef look(key: str) -> str:\n    'Look it up.'\n"
    )
    monkeypatch.syspath_prepend(str(project))
    assert main(["config", "tiny", "tools=[my_quiet_tools:look]"]) == 0
    message_of_tool = "agentfly: The tool 'look': its parameter 'key' has no description: "
    assert capsys.readouterr().err.startswith(message_of_tool)


def test_commands_check_data_files_and_model_first(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = (
        'data={use: "agentfly_core.datasets.files:files", train_file: x.jsonl, train: 64, test: 1}'
    )
    for command in ("train", "evaluate", "prepare", "warm-start", "config"):
        assert main([command, "tiny", files]) == 2
        assert "agentfly: data: There is no data file x.jsonl" in capsys.readouterr().err
        assert main([command, "tiny", "model=nano:calc"]) == 2
        assert "agentfly: model: There is no nano model 'calc'" in capsys.readouterr().err
    assert not (project / "runs").exists()
