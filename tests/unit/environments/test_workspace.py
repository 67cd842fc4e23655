"""Files of an episode's own, and commands that run on them."""

from typing import Any

import pytest

from agentfly_core.authoring.tool import Tool
from agentfly_core.environments import workspace as workspaces
from agentfly_core.environments.workspace import Workspace
from agentfly_core.records.trajectory import Observation, Problem, ToolCall
from agentfly_core.tools.files import (
    create_file,
    edit_file,
    list_files,
    read_file,
    search_files,
    undo_change,
)
from agentfly_core.tools.shell import shell

FILES = {"main.py": "import notes\nprint(notes.COUNT)\n", "notes.py": "COUNT = 1\n"}


@pytest.fixture
async def workspace() -> Workspace:
    made = Workspace()
    await made.reset(Problem("count", "Make it print 2.", {"files": FILES}))
    return made


async def ask(tool: Tool, workspace: Workspace, **arguments: Any) -> Observation:
    return await tool.answer(ToolCall(tool.name, arguments), {Workspace: workspace})


async def test_files_are_listed_read_by_line_and_searched(workspace: Workspace) -> None:
    assert (await ask(list_files, workspace)).content == "main.py\nnotes.py"
    assert (
        await ask(read_file, workspace, name="main.py", first=2)
    ).content == "2\tprint(notes.COUNT)"
    assert (await ask(search_files, workspace, text="COUNT")).content == (
        "main.py:2: print(notes.COUNT)\nnotes.py:1: COUNT = 1"
    )


async def test_a_change_can_be_undone(workspace: Workspace) -> None:
    assert (await ask(edit_file, workspace, name="notes.py", old="1", new="2")).content == "Done."
    assert (
        await ask(create_file, workspace, name="docs/new.txt", text="a\nb")
    ).content == "docs/new.txt has 2 lines."
    await ask(undo_change, workspace)
    assert workspace.files == FILES | {"notes.py": "COUNT = 2\n"}
    await ask(undo_change, workspace)
    assert workspace.files == FILES
    assert (await ask(undo_change, workspace)).error


async def test_an_edit_must_match_one_place(workspace: Workspace) -> None:
    result = await ask(edit_file, workspace, name="main.py", old="notes", new="n")
    assert (result.error, "contains 'notes' 2 times, expected once" in result.content) == (
        True,
        True,
    )
    assert workspace.files == FILES


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../up.txt", "a/../../b", "./main.py", "", "a\x00b", "a//b", "dir/"]
)
async def test_a_path_outside_is_refused(workspace: Workspace, name: str) -> None:
    assert (await ask(create_file, workspace, name=name, text="x")).error
    assert workspace.files == FILES


@pytest.mark.parametrize(
    "name", ["n" * 256, "\N{SNOWMAN}" * 86, "folder/" * 200 + "x", "notes.py/x"]
)
async def test_an_invalid_file_name_is_refused_early(workspace: Workspace, name: str) -> None:
    assert (await ask(create_file, workspace, name=name, text="x")).error
    assert workspace.files == FILES


async def test_the_size_of_files_is_limited(workspace: Workspace) -> None:
    result = await ask(create_file, workspace, name="big.txt", text="x" * 1_000_001)
    assert (result.error, "too many" in result.content) == (True, True)


async def test_the_number_of_folders_is_limited(workspace: Workspace) -> None:
    names = [f"{top}/" + "a/" * 300 + "f" for top in "bc"]
    first, second = [await ask(create_file, workspace, name=name, text="") for name in names]
    assert (first.error, second.error, "too many" in second.content) == (False, True, True)


async def test_a_snapshot_has_all_files_and_a_reset_has_none(
    workspace: Workspace,
) -> None:
    await ask(create_file, workspace, name="new.txt", text="x")
    kept = await workspace.snapshot()
    await workspace.reset(Problem("count", "Make it print 2.", {"files": FILES}))
    assert workspace.files == FILES
    await workspace.restore(kept)
    assert workspace.files == FILES | {"new.txt": "x"}


@pytest.mark.usefixtures("sandbox")
async def test_a_command_reads_and_changes_the_files(workspace: Workspace) -> None:
    command = (
        "sed -i s/1/2/ notes.py && python3 main.py && "
        "mkdir -p out && echo done > out/log && rm main.py"
    )
    assert await ask(shell, workspace, command=command) == Observation("shell", "2")
    assert workspace.files == {"notes.py": "COUNT = 2\n", "out/log": "done\n"}
    await ask(undo_change, workspace)
    assert workspace.files == FILES


@pytest.mark.usefixtures("sandbox")
async def test_a_command_reads_many_files_of_deep_folders(workspace: Workspace) -> None:
    workspace.files = {f"src/shop/views/parts/{number}.py": "" for number in range(500)}
    result = await ask(shell, workspace, command="ls src/shop/views/parts | wc -l")
    assert result == Observation("shell", "500")


@pytest.mark.usefixtures("sandbox")
async def test_a_failed_command_keeps_its_output_and_its_files(
    workspace: Workspace,
) -> None:
    result = await ask(shell, workspace, command="echo so far; touch empty; exit 3")
    assert result == Observation("shell", "so far\nEnded with exit code 3.", error=True)
    assert workspace.files == FILES | {"empty": ""}


@pytest.mark.usefixtures("sandbox")
async def test_a_command_is_isolated_and_its_links_are_removed(
    workspace: Workspace,
) -> None:
    result = await ask(
        shell,
        workspace,
        command="ln -s /usr/lib/os-release link; ls /root /home /tmp/agentfly* 2>&1; true",
    )
    assert "No such file or directory" in result.content
    assert workspace.files == FILES


@pytest.mark.usefixtures("sandbox")
async def test_forged_files_of_a_command_are_refused(
    workspace: Workspace,
) -> None:
    for made in ("'[' + '0,' * 5000000 + '0]'", "'[' * 100000", "[1]", "'{}{}'", r"'{\"a\": 1}'"):
        forge = f"python3 -c \"open('../kept.json', 'w').write({made})\"; kill -9 $PPID"
        assert (await ask(shell, workspace, command=forge)).error
        assert workspace.files == FILES


@pytest.mark.usefixtures("sandbox")
async def test_a_stopped_command_changes_nothing(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workspaces, "LIMITS", workspaces.Limits(wall=0.5))
    result = await ask(shell, workspace, command="echo gone > notes.py; while :; do :; done")
    assert (result.error, "Stopped: it took longer" in result.content) == (True, True)
    assert workspace.files == FILES
