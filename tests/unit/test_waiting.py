"""Waits of tests end when their process has ended, and not by a clock."""

import ast
import subprocess
import sys

import pytest

from tests.support.project import ROOT
from tests.support.waiting import until


def test_a_wait_ends_with_its_process_and_its_output():
    command = [sys.executable, "-S", "-c", "print('no such table'); raise SystemExit(3)"]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as process:
        with pytest.raises(AssertionError, match=r"ended with 3, printing 'no such table\\n'"):
            until(lambda: False, process)


def test_a_wait_ends_with_the_process_of_an_id():
    with subprocess.Popen([sys.executable, "-S", "-c", ""], stdin=-1) as process:
        with pytest.raises(AssertionError, match=f"the process {process.pid} ended"):
            until(lambda: False, process.pid)


def test_a_condition_met_before_the_end_counts(tmp_path):
    file = tmp_path / "made"
    command = [sys.executable, "-S", "-c", f"open({str(file)!r}, 'w')"]
    with subprocess.Popen(command, stdin=-1, text=True) as process:
        until(file.exists, process)


WAITS = {"until", "wait", "wait_for", "wait_procs", "communicate", "join", "acquire"}


def short_waits(file):
    """The lines of a file that wait for 5 seconds to 30 minutes."""
    for call in (node for node in ast.walk(ast.parse(file.read_text())) if type(node) is ast.Call):
        name = getattr(call.func, "attr", getattr(call.func, "id", ""))
        given = [*call.args, *(word.value for word in call.keywords)]
        numbers = [one.value for one in given if type(one) is ast.Constant]
        if name in WAITS and any(type(n) in (int, float) and 5 <= n < 1800 for n in numbers):
            yield f"{file.relative_to(ROOT)}:{call.lineno}"


def test_no_test_waits_less_than_half_an_hour():
    files = sorted((ROOT / "tests").rglob("*.py"))
    assert [line for file in files for line in short_waits(file)] == []
