"""The parts of docs/how-to/test-parts.md pass the tests shown there, and are one experiment."""

import json
import os
import re
import subprocess
import sys

import pytest

from flows.__main__ import main
from tests.support.project import ROOT

PAGE = (ROOT / "docs/how-to/test-parts.md").read_text()
FILES = dict(re.findall(r"`(\w+\.(?:py|yaml))`:\n\n```(?:python|yaml)\n(.*?)```", PAGE, re.DOTALL))
PARTS = ("tool", "reward", "environment", "dataset", "agent", "algorithm")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory, with all files of the page."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for module in FILES:  # of another test's folder
        monkeypatch.delitem(sys.modules, module.removesuffix(".py"), raising=False)
    return tmp_path


def test_each_part_is_one_file_with_its_test():
    parts = {f"my_{part}.py" for part in PARTS}
    assert FILES.keys() == {*parts, *(f"my_{part}_test.py" for part in PARTS), "letters.yaml"}
    assert PAGE.count("```") == 2 * len(FILES)


def test_the_tests_of_the_page_pass(folder):
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    pytest_here = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", "."]
    done = subprocess.run(
        pytest_here,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    cases = PAGE.count("def test_") + 3  # one test has four cases
    assert f"{cases} passed" in done.stdout


def test_the_experiment_is_valid_with_a_line_for_each_part(folder, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["config", "letters.yaml", "--changed"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    rows = [[cell.strip() for cell in line.split("│")] for line in printed.out.splitlines()]
    assert ["algorithm.use", json.dumps("my_algorithm:Signed"), "letters.yaml"] in rows
    named = {part: re.findall(rf"my_{part}:\w+", FILES["letters.yaml"]) for part in PARTS}
    lines = re.findall(r"^The line: `(.*?)`", PAGE, re.MULTILINE)
    assert len(lines) == len(PARTS)
    for part, line in zip(PARTS, lines, strict=True):
        assert re.findall(r"my_\w+:\w+", line)[0] in named[part]
