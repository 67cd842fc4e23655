"""Commands that are refused at once, with one clear message and without side effects."""

import json
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.killed_commands import RUN, TINY, TRAIN, Lives
from tests.support.servers import request

LONG = pytest.mark.long
HOLD = """
import sys; from pathlib import Path; from agentfly_core.store.lock import local_lock
with local_lock(Path(sys.argv[1])):
    print("held", flush=True); sys.stdin.read()
"""


def test_a_typo_is_refused_with_the_intended_word(tmp_path: Path, lives: Lives) -> None:
    end = lives.run(tmp_path, *TRAIN, "update.lerning_rate=1")
    assert end.code == 2
    assert end.printed.startswith("agentfly: ")
    assert "update.lerning_rate: there is no such key. Did you mean 'learning_rate'?" in end.printed
    assert [path.name for path in tmp_path.iterdir()] == ["output"]


def test_a_bad_row_is_refused_by_number_and_quarantined(tmp_path: Path, lives: Lives) -> None:
    rows = [{"id": str(n), "question": f"What is {n}?", "answer": n} for n in range(12)] + [
        {"id": "12", "answer": 12}
    ]
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    data = (
        "data={use: 'agentfly_core.datasets.files:files', train_file: rows.jsonl, "
        "train: 6, validation: 1, test: 2}"
    )
    end = lives.run(tmp_path, "prepare", TINY, data)
    assert end.code == 2
    message, ending = end.printed.splitlines()
    assert ending.endswith("flow.log. The same command fails again until this error is corrected.")
    assert message.startswith(
        "agentfly: 1 row of the data cannot be used (tolerated: 0). The first: rows.jsonl, row 13:"
    )
    assert json.loads((tmp_path / "quarantine/tiny.json").read_text())[0].startswith(
        "rows.jsonl, row 13:"
    )
    assert not list(tmp_path.glob("artifacts/prepare/*"))


def test_prompts_without_room_for_a_reply_are_refused_early(tmp_path: Path, lives: Lives) -> None:
    end = lives.run(tmp_path, *TRAIN, "agent.max_model_len=12", "agent.max_tokens=8")
    assert end.code == 2
    message, _ = end.printed.splitlines()[-2:]
    assert "For 24 of the problems, the first prompt leaves no room for a reply. " in message
    assert "agent.max_model_len is 12 tokens" in message
    left = (path.name for path in (tmp_path / "artifacts").iterdir() if any(path.iterdir()))
    assert sorted(left) == ["model", "prepare", "solvable"]


@pytest.mark.parametrize(
    ("command", "policy"),
    [
        ("prepare", ()),
        pytest.param("warm-start", (), marks=LONG),
        pytest.param("evaluate", ("--policy", "nano:calculator"), marks=LONG),
    ],
)
def test_a_failed_command_prints_the_cause_and_the_remedy(
    tmp_path: Path, lives: Lives, command: str, policy: Sequence[str]
) -> None:
    (tmp_path / "mine.py").write_text(
        "def rows(seed, train, validation, test):\n    return seed / 0\n"
    )
    words = (command, TINY, "data={use: 'mine:rows', train: 6, test: 2}", *policy)
    end = lives.run(tmp_path, *words)
    assert end.code == 2
    *traced, cause, ending = end.printed.splitlines()
    assert f'  File "{tmp_path}/mine.py", line 2, in rows' in traced
    assert cause == "ZeroDivisionError: division by zero"
    log = f"{tmp_path}/.agentfly/logs/{command}/flow.log"
    assert ending == f"The log is {log}. To continue: agentfly {shlex.join(words)}"


def test_a_second_process_is_refused_at_once(
    at_step_2: Path, lives: Lives, prefect_api: str
) -> None:
    running = flow_run(prefect_api)
    links = at_step_2 / RUN / "links.json"
    links.write_text(json.dumps({"prefect_flow_run_ids": [running]}))
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(at_step_2 / RUN)], stdin=-1, stdout=-1
    ) as first:
        assert first.stdout and first.stdout.readline() == b"held\n"
        end = lives.run(at_step_2, *TRAIN)
        first.kill()
    assert end.code == 2
    (message,) = end.printed.splitlines()
    assert message.startswith(f"agentfly: The run 'demo' is held by process {first.pid} on ")
    assert json.loads(links.read_text()) == {"prefect_flow_run_ids": [running]}
    assert request("GET", f"{prefect_api}/flow_runs/{running}")["state"]["type"] == "RUNNING"


def flow_run(api: str) -> str:
    """A flow run in the state Running."""
    flow = request("POST", f"{api}/flows/", json={"name": "train"})["id"]
    state = {"type": "RUNNING"}
    made = request("POST", f"{api}/flow_runs/", json={"flow_id": flow, "state": state})
    return str(made["id"])
