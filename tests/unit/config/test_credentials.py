"""A secret is refused as a setting, by its name or by its value in the environment."""

import json
from pathlib import Path

import pytest

from agentfly_core.config import loading
from agentfly_core.config.credentials import SecretGiven
from flows.__main__ import main
from flows.flow_run import experiment_of_flow
from tests.support.experiments import TINY

PLANTED = "sk-1f2e3d4c"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/tiny.yaml").write_text(TINY)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "key",
    [
        *("data.api_key", "data.token", "data.hf_token", "data.accessToken", "data.password"),
        *("data.client-secret", "data.headers.Authorization", "warm_start.settings.API_KEY"),
        *("data.apikey", "template.private_key", "algorithm.credentials", "data.db_passwd"),
    ],
)
def test_a_secret_is_refused_by_its_name_and_not_shown(key: str) -> None:
    last = key.rpartition(".")[2]
    with pytest.raises(SecretGiven, match=rf"^an override: {key} has a name") as refusal:
        loading.read("tiny", [f"{key}={PLANTED}"])
    assert f"{last}_env=MY_" in str(refusal.value)
    assert PLANTED not in str(refusal.value)


@pytest.mark.parametrize(
    "override",
    [
        "agent.max_tokens=64",
        "algorithm.correction=token_tis",
        "algorithm={use: ppo, gae: token}",
        "warm_start={demonstrations: 'a:b', settings: {stop_tokens: ['</a>'], stop_token: '</a>'}}",
        "warm_start={demonstrations: 'a:b', settings: {tokenizer: mine, token_file: /run/token}}",
        "warm_start={demonstrations: 'a:b', settings: {token: null, secret: false, password: ''}}",
        "warm_start={demonstrations: 'a:b', settings: {per_token: 1, token: 7, key: x, monkey: y}}",
        "warm_start={demonstrations: 'a:b', settings: {api_key_env: SEARCH_API_KEY}}",
        "rewards={'my.secret:token': 1}",
    ],
)
def test_a_setting_with_a_similar_name_is_accepted(override: str) -> None:
    assert loading.read("tiny", [override]).name == "tiny"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            f"agent.system='Use {PLANTED}.'",
            "agent.system holds the secret of the environment variable SEARCH_KEY",
        ),
        (
            f"data={{use: 'a:b', urls: ['http://h/?q={PLANTED}']}}",
            "data.urls holds .*data.urls_env=SEARCH_KEY",
        ),
        ("data.url='http://me:opensesame@host'", "data.url holds a password in a URL"),
        ("data.password=123456", "data.password has a name that is used for secrets"),
        (
            f"data.api_key_env={PLANTED[:6]}!",
            "data.api_key_env has a name that is used for secrets",
        ),
    ],
)
def test_a_secret_is_refused_under_any_name(
    override: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEARCH_KEY", PLANTED)
    with pytest.raises(SecretGiven, match=message) as refusal:
        loading.read("tiny", [override])
    for secret in (PLANTED, "opensesame", "123456"):
        assert secret not in str(refusal.value)


def test_a_secret_among_the_settings_of_an_override_is_refused() -> None:
    with pytest.raises(SecretGiven, match=r"warm_start.settings.api_key has a name"):
        loading.read(
            "tiny", [f"warm_start={{demonstrations: 'a:b', settings: {{api_key: {PLANTED}}}}}"]
        )


@pytest.mark.parametrize("text", [f"data.api_key: {PLANTED}", f"data.api_key=[{PLANTED}"])
def test_an_unreadable_secret_is_not_shown_either(text: str) -> None:
    with pytest.raises(ValueError, match=r"override 'data\.api_key'") as refusal:
        loading.read("tiny", [text])
    assert PLANTED not in str(refusal.value)


def test_a_secret_in_the_file_is_refused_with_the_files_name(project: Path) -> None:
    data = {
        "use": "agentfly_core.datasets.arithmetic:arithmetic",
        "train": 64,
        "test": 16,
        "api_key": PLANTED,
    }
    (project / "conf/tiny.yaml").write_text(TINY.replace("data: {", f"data: {json.dumps(data)} #"))
    with pytest.raises(SecretGiven, match=r"^conf/tiny.yaml: data.api_key has a name"):
        loading.read("tiny")


def test_a_command_with_a_secret_leaves_no_files(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "tiny", f"data.api_key={PLANTED}"]) == 2
    assert PLANTED not in capsys.readouterr().err
    assert [path.name for path in project.iterdir()] == ["conf"]


def test_a_flow_run_with_a_secret_names_the_delete_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PREFECT__RUNTIME__FLOW_RUN__ID", "5f0e")
    with pytest.raises(SecretGiven, match=r"agentfly prefect flow-run delete 5f0e$") as refusal:
        experiment_of_flow("tiny", [f"data.api_key={PLANTED}"], "local", "")
    assert PLANTED not in str(refusal.value)
