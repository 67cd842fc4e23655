"""Modules of AgentFly are always AgentFly's, and a user's modules are found in the working
directory.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agentfly_core.config.import_path import load
from agentfly_core.records.trajectory import Observation, ToolCall
from agentfly_core.sandbox.backends import Unsafe
from agentfly_core.sandbox.cgroups import Cgroups
from agentfly_core.sandbox.guest.protocol import ExecRequest, Status
from agentfly_core.sandbox.sandbox import Sandbox
from agentfly_core.system.module_search import (
    OURS,
    SOURCES,
    finding_ours,
    for_children,
    refuse_namesakes,
)
from agentfly_core.system.service import State, supervised
from flows.__main__ import main
from tests.support.project import PROGRAMS, ROOT
from tests.support.waiting import LIMIT

BROKEN = "raise RuntimeError('imported in place of ours')\n"


@pytest.mark.parametrize(
    "file",
    [*(f"{name}.py" for name in OURS), "tasks/__init__.py", "flows/__init__.py", "tasks/mine.py"],
)
@pytest.mark.parametrize("command", [["config", "shop.yaml"], ["list"]], ids=["config", "list"])
def test_a_module_of_ones_own_with_a_name_of_ours_is_refused_with_the_way_out(
    file: str,
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(BROKEN)
    monkeypatch.chdir(tmp_path)
    assert main(command) == 2
    told = capsys.readouterr().err
    assert f"{tmp_path / file} has the name of a package of AgentFly" in told
    assert "Put it into a package of your own" in told


@pytest.mark.slow
def test_the_program_says_so_in_one_message_and_does_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(BROKEN)
    shutil.copy(ROOT / "tests/conf/tiny.yaml", tmp_path)
    agentfly = [PROGRAMS / "agentfly", "train", "tiny.yaml"]
    done = subprocess.run(agentfly, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(
        f"agentfly: {tmp_path}/tasks.py has the name of a package of AgentFly, 'tasks'"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tasks.py", "tiny.yaml"]


def test_a_module_that_is_found_before_ours_is_refused_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tasks.py").write_text(BROKEN)
    monkeypatch.delitem(sys.modules, "tasks", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(
        ValueError, match=r"tasks\.py has the name of a package of AgentFly, 'tasks'"
    ):
        refuse_namesakes(ROOT)


def test_a_checkout_of_ours_and_a_folder_of_data_pass(tmp_path: Path) -> None:
    refuse_namesakes(ROOT)
    for name in OURS:
        (tmp_path / name).mkdir()
        shutil.copy(ROOT / name / "__init__.py", tmp_path / name)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "tasks").mkdir()
    (tmp_path / "data" / "tasks" / "1.json").write_text("{}")
    refuse_namesakes(tmp_path)
    refuse_namesakes(tmp_path / "data")


def test_a_module_of_ones_own_that_an_installed_one_hides_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "yaml.py").write_text("def mine(): ...\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        ValueError, match=r"What is imported as 'yaml' is not .*yaml\.py but .*site-packages/yaml"
    ):
        load("yaml:mine")


def test_libraries_do_not_find_what_lies_in_the_working_directory_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_own_part.py").write_text("def mine(): return 7\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert load("my_own_part:mine")() == 7
    assert sys.path[-1] == str(tmp_path)


def test_a_service_starts_and_finds_ones_own_modules_whatever_lies_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("agentfly_core", "psutil", "json"):
        (tmp_path / f"{name}.py").write_text(BROKEN)
    (tmp_path / "my_part.py").write_text(
        "from pathlib import Path\ndef mine(): Path('found').write_text('yes')\n"
    )
    monkeypatch.chdir(tmp_path)
    command = [
        sys.executable,
        "-c",
        "from agentfly_core.config.import_path import load; load('my_part:mine')()",
    ]
    address, log = tmp_path / "a" / "s.sock", tmp_path / "log"
    with supervised("part", command, {}, address, log, "run-importing", restarts=0) as service:
        service.wait(
            lambda: (state := State.read(service.address)) is not None and state.exit is not None,
            LIMIT,
        )
        assert (tmp_path / "found").exists(), log.read_text()


async def test_so_does_a_tool_in_a_process_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "agentfly_core.py").write_text(BROKEN)
    told = (
        "from agentfly_core.authoring.tool import tool\n"
        "@tool(process=True)\ndef seven() -> int:\n    return 7\n"
    )
    (tmp_path / "my_tool_apart.py").write_text(told)
    monkeypatch.chdir(tmp_path)
    seven = load("my_tool_apart:seven")
    assert await seven.answer(ToolCall("seven", {}), {}) == Observation("seven", "7")


async def test_so_does_code_without_a_sandbox(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("agentfly_core", "shutil"):
        (tmp_path / f"{name}.py").write_text(BROKEN)
    monkeypatch.chdir(tmp_path)
    sandbox = Sandbox(Unsafe(), Cgroups("none", ()))
    result = await sandbox.execute(
        ExecRequest(b"import shutil, own; print(own.six)", {"own.py": b"six = 6"})
    )
    assert (result.status, result.stdout) == (Status.OK, "6\n"), result


def test_a_started_python_finds_this_very_agentfly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f":/somewhere:{SOURCES}")
    assert finding_ours() == {"PYTHONSAFEPATH": "1", "PYTHONPATH": f"{SOURCES}:/somewhere"}


def test_children_are_given_no_secret_of_the_prefect_and_mlflow_servers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PREFECT_API_AUTH_STRING", "agentfly:f3Qk")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "f3Qk")
    monkeypatch.setenv("HF_TOKEN", "hf_Xq81kd93")
    given = for_children()
    assert "f3Qk" not in " ".join(given.values())
    assert given["HF_TOKEN"] == "hf_Xq81kd93"
    assert given["PYTHONSAFEPATH"] == "1"
