"""Modules of AgentFly are always AgentFly's, and a user's modules are found in the working
directory.
"""

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
    import_ours,
    require_package,
)
from agentfly_core.system.service import ChildState, supervised
from flows.__main__ import main
from tests.support.project import PROGRAMS, ROOT
from tests.support.waiting import LIMIT

BROKEN = "raise RuntimeError('imported in place of ours')\n"


OWN = [*(f"{name}.py" for name in OURS), "tasks/__init__.py", "flows/__init__.py", "tasks/own.py"]


def own_module(folder: Path, file: str) -> Path:
    """A project with a module that has a name of ours, and an experiment."""
    (folder / file).parent.mkdir(exist_ok=True)
    (folder / file).write_text(BROKEN)
    shutil.copy(ROOT / "tests/conf/tiny.yaml", folder)
    return folder


@pytest.mark.parametrize("file", OWN)
def test_a_project_can_have_modules_with_names_of_ours(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(own_module(tmp_path, file))
    assert main(["config", "tiny.yaml"]) == 0


def test_a_module_in_a_package_named_as_ours_is_refused_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(own_module(tmp_path, "flows/my_agent.py"))
    with pytest.raises(ValueError, match="rename your folder 'flows'"):
        load("flows.my_agent:agent")


@pytest.mark.long
def test_the_program_works_in_a_repository_of_prefect_flows(tmp_path: Path) -> None:
    for file in ("flows/__init__.py", "flows/etl.py", "tasks/load.py"):
        own_module(tmp_path, file)
    agentfly = [PROGRAMS / "agentfly", "prepare", "tiny.yaml", "--store", str(tmp_path / "store")]
    done = subprocess.run(agentfly, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_our_packages_are_always_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tasks.py").write_text(BROKEN)
    monkeypatch.delitem(sys.modules, "tasks", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    import_ours()
    assert sys.modules["tasks"].__file__ == str(SOURCES / "tasks" / "__init__.py")


def test_a_module_hidden_by_an_installed_one_is_named_with_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "yaml.py").write_text("def mine(): ...\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"'yaml' \(.*site-packages/yaml/.* has no 'mine'"):
        load("yaml:mine")


def test_libraries_ignore_modules_of_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_own_part.py").write_text("def mine(): return 7\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert load("my_own_part:mine")() == 7
    assert sys.path[-1] == str(tmp_path)


def test_a_service_imports_user_modules_from_any_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("agentfly_core", "flows", "tasks", "psutil", "json"):
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
            lambda: (
                (state := ChildState.read(service.address)) is not None and state.exit is not None
            ),
            LIMIT,
        )
        assert (tmp_path / "found").exists(), log.read_text()


async def test_a_tool_in_its_own_process_imports_user_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "agentfly_core.py").write_text(BROKEN)
    source = (
        "from agentfly_core.authoring.tool import tool\n"
        "@tool(process=True)\ndef seven() -> int:\n    return 7\n"
    )
    (tmp_path / "my_tool_apart.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    seven = load("my_tool_apart:seven")
    assert await seven.answer(ToolCall("seven", {}), {}) == Observation("seven", "7")


async def test_code_without_a_sandbox_imports_user_modules(
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


def test_a_child_process_imports_the_same_agentfly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f":/somewhere:{SOURCES}")
    assert finding_ours() == {"PYTHONSAFEPATH": "1", "PYTHONPATH": f"{SOURCES}:/somewhere"}


def test_children_get_no_secret_of_prefect_or_mlflow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PREFECT_API_AUTH_STRING", "agentfly:f3Qk")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "f3Qk")
    monkeypatch.setenv("HF_TOKEN", "hf_Xq81kd93")
    given = for_children()
    assert "f3Qk" not in " ".join(given.values())
    assert given["HF_TOKEN"] == "hf_Xq81kd93"
    assert given["PYTHONSAFEPATH"] == "1"


def test_a_missing_package_has_its_install_command() -> None:
    require_package("pytest==1.0", "test")
    message = r"The package no-such is missing.* `pip install no-such==1\.0`; .* the extra `odd`"
    with pytest.raises(ValueError, match=message):
        require_package("no-such==1.0", "odd")
