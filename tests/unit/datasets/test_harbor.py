"""Tasks in the layouts of Harbor and of terminal-bench."""

from pathlib import Path

import pytest

from agentfly_core.datasets.harbor import harbor
from agentfly_core.environments.workspace import Workspace
from agentfly_core.records.dataset import BadRow
from agentfly_core.records.trajectory import Problem
from agentfly_core.rewards.folder import hidden_check

TOML = '[metadata]\ncategory = "files"\n[verifier]\ntimeout_sec = 5.0\n'
DOCKERFILE = "FROM ubuntu:24.04\n# the notes\nWORKDIR /app\nCOPY notes.txt \\\n    docs/\n"
TEST = "grep -qx 3 /app/count.txt && echo 1 > /logs/verifier/reward.txt\n"
DOCKER = "environment/Dockerfile"
HARBOR = {
    "instruction.md": "Write how many words docs/notes.txt has into count.txt.\n",
    "task.toml": TOML,
    "environment/Dockerfile": DOCKERFILE,
    "environment/notes.txt": "one two three\n",
    "tests/test.sh": TEST,
    "solution/solve.sh": "wc -w < docs/notes.txt > count.txt\n",
}
BENCH = {
    "task.yaml": "instruction: Say hello in hello.txt.\n"
    "difficulty: easy\nmax_test_timeout_sec: 9\n",
    "docker-compose.yaml": "services:\n  client:\n    build: .\n",
    "Dockerfile": "FROM images.example/t-bench/ubuntu-24-04:latest\nCOPY data data\n",
    "data/a.txt": "a\n",
    "run-tests.sh": "python3 $TEST_DIR/test_outputs.py\n",
    "tests/expected.py": "TEXT = 'hello\\n'\n",
    "tests/test_outputs.py": "import sys\nfrom expected import TEXT\n"
    "assert open('/app/hello.txt').read() == TEXT\n",
    "solution.sh": "echo hello > hello.txt\n",
}


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def one(root: Path, files: dict[str, str]) -> Problem | BadRow:
    """The row of a folder with one task."""
    write(root / "task", files)
    [row] = harbor(0, 1, 0, 0, root)["train"]
    return row


def test_a_harbor_task_becomes_a_problem(tmp_path: Path) -> None:
    check = {"files": {"test.sh": TEST}, "script": "test.sh", "by_exit_code": False, "seconds": 5.0}
    assert one(tmp_path, HARBOR) == Problem(
        "task",
        "Write how many words docs/notes.txt has into count.txt.",
        {"files": {"docs/notes.txt": "one two three\n"}, "check": check, "category": "files"},
    )


def test_a_terminal_bench_task_is_judged_by_its_exit_code(tmp_path: Path) -> None:
    problem = one(tmp_path, BENCH)
    assert isinstance(problem, Problem)
    assert (problem.prompt, problem.facts["files"]) == (
        "Say hello in hello.txt.",
        {"data/a.txt": "a\n"},
    )
    check = problem.facts["check"]
    assert (check["script"], check["by_exit_code"], check["seconds"]) == ("run-tests.sh", True, 9)
    assert check["files"].keys() == {"run-tests.sh", "expected.py", "test_outputs.py"}
    assert problem.facts["difficulty"] == "easy"


@pytest.mark.usefixtures("sandbox")
@pytest.mark.parametrize(
    ("files", "right"), [(HARBOR, {"count.txt": "3\n"}), (BENCH, {"hello.txt": "hello\n"})]
)
async def test_the_check_passes_the_solution_only(
    tmp_path: Path, files: dict[str, str], right: dict[str, str]
) -> None:
    problem, workspace = one(tmp_path, files), Workspace()
    assert isinstance(problem, Problem)
    await workspace.reset(problem)
    assert await hidden_check(workspace=workspace, problem=problem) == 0.0
    workspace.files = {**workspace.files, **right}
    assert await hidden_check(workspace=workspace, problem=problem) == 1.0


@pytest.mark.parametrize(
    ("layout", "name", "text", "where", "why"),
    [
        (HARBOR, DOCKER, DOCKERFILE + "RUN make \\\n  all", 6, "RUN make all: this instruction"),
        (HARBOR, DOCKER, "FROM postgres:16", 1, "FROM postgres:16: this instruction needs"),
        (HARBOR, DOCKER, "FROM me/python:3", 1, "FROM me/python:3: this instruction needs"),
        (HARBOR, DOCKER, "FROM ubuntu\nWORKDIR /srv", 2, "WORKDIR /srv: this instruction needs"),
        (HARBOR, DOCKER, "COPY notes.txt /etc/notes", 1, "expected a target in"),
        (HARBOR, DOCKER, "COPY notes.txt ../notes", 1, "expected a target in /app"),
        (HARBOR, DOCKER, "COPY ../task.toml .", 1, "is missing in the folder of"),
        (HARBOR, DOCKER, "COPY --chown=1 notes.txt .", 1, "--chown=1 is missing"),
        (HARBOR, DOCKER, 'COPY ["notes.txt", "."]', 1, "is missing in"),
        (HARBOR, "environment/docker-compose.yaml", "", 1, "several containers"),
        (HARBOR, "task.toml", "[environment]\ndocker_image = 'me/x:1'", 1, "is me/x:1, expected"),
        (HARBOR, "task.toml", "[verifier", 1, "invalid TOML"),
        (HARBOR, "task.toml", "[verifier]\ntimeout_sec = 'long'", 1, "time limit is 'long' s"),
        (HARBOR, "tests/test.sh", "set -e\ncurl -LsSf https://x | sh\n" + TEST, 2, "calls curl"),
        (HARBOR, "tests/test.sh", "git -C /app status # 1\n" + TEST, 1, "it calls git: a"),
        (HARBOR, "tests/test.sh", "X=${#A}; git -C /app log\n" + TEST, 1, "it calls git"),
        (HARBOR, "tests/h.sh", "git -C /app log", 1, "it calls git"),
        (HARBOR, "tests/c.py", "import subprocess\nsubprocess.run(['git'])", 2, "it calls git"),
        (HARBOR, "task.toml", "environment = 'x'", 1, "environment is 'x', expected a mapping"),
        (HARBOR, "tests/test.sh", "exit 0", 1, "must write /logs/verifier/reward.txt"),
        (BENCH, "run-tests.sh", "# install\nuvx pytest $TEST_DIR", 2, "it calls uvx"),
        (BENCH, "tests/test_outputs.py", "import os\nimport pytest", 2, "it imports pytest: "),
        (BENCH, "tests/test_outputs.py", "from yaml.nodes import Node", 1, "it imports yaml: "),
        (BENCH, "tests/test_outputs.py", "import os, numpy.linalg", 1, "it imports numpy: "),
        (BENCH, "docker-compose.yaml", "services: {a: {}, b: {}}", 1, "several containers"),
        (BENCH, "Dockerfile", "COPY . .", 1, "copies the tests or the solution"),
        (BENCH, "task.yaml", "difficulty: easy", 1, "the instruction is missing"),
        (BENCH, "task.yaml", "[]", 1, "expected a mapping"),
        (BENCH, "task.yaml", "a: [", 1, "task.yaml, line 1, column 5 is invalid YAML"),
        (BENCH, "data/a.txt", "x" * 1_000_000, 1, "got 1 file of 1000010 bytes, expected"),
    ],
)  # fmt: skip
def test_an_unsupported_task_is_refused_with_file_and_line(
    tmp_path: Path, layout: dict[str, str], name: str, text: str, where: int, why: str
) -> None:
    row = one(tmp_path, {**layout, name: text})
    assert isinstance(row, BadRow)
    refused = "Dockerfile" if name == "data/a.txt" else name
    assert (row.source, row.row) == (f"task/{refused}", where)
    assert why in row.fault


def test_words_of_a_docstring_are_not_imports(tmp_path: Path) -> None:
    program = '"""Take words\nfrom files.\n"""\nfrom . import expected\n'
    assert isinstance(one(tmp_path, {**BENCH, "tests/test_outputs.py": program}), Problem)


def test_a_task_with_bytes_links_or_missing_files_is_refused(tmp_path: Path) -> None:
    for name, files in {"a": HARBOR, "b": HARBOR, "c": HARBOR, "d": {"README": "none"}}.items():
        write(tmp_path / name, files)
    (tmp_path / "a/environment/notes.txt").write_bytes(b"\xff")
    (tmp_path / "b/tests/right").symlink_to("/etc/passwd")
    (tmp_path / "c/tests/test.sh").unlink()
    assert [str(row) for row in harbor(0, 1, 0, 1, tmp_path)["train"]] == [
        "a/environment/notes.txt, row 1: it is not text",
        "b/tests/right, row 1: missing, expected a file that is not a link",
        "c/tests/test.sh, row 1: missing, expected a file that is not a link",
        "d/task.yaml, row 1: missing, expected a file that is not a link",
    ]


def test_splits_share_no_task(tmp_path: Path) -> None:
    for number in range(6):
        write(tmp_path / f"task-{number}", HARBOR)
    splits = harbor(0, 3, 1, 2, tmp_path)
    assert {split: len(rows) for split, rows in splits.items()} == {
        "train": 3,
        "validation": 1,
        "test": 2,
    }
    ids = {row.id for rows in splits.values() for row in rows if isinstance(row, Problem)}
    assert len(ids) == 6
    assert splits == harbor(0, 3, 1, 2, tmp_path) != harbor(1, 3, 1, 2, tmp_path)


def test_a_missing_folder_is_refused() -> None:
    with pytest.raises(ValueError, match="folder: got 'nowhere', expected"):
        harbor(0, 1, 0, 1, Path("nowhere"))
