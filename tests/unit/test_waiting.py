"""Waits of tests end when their process has ended, and not by a clock."""

import subprocess
import sys

import pytest

from tests.support.waiting import until


def test_a_wait_ends_with_its_process_and_tells_what_it_printed():
    command = [sys.executable, "-S", "-c", "print('no such table'); raise SystemExit(3)"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        with pytest.raises(AssertionError, match=r"ended with 3, printing 'no such table\\n'"):
            until(lambda: False, process)


def test_a_wait_ends_with_the_process_of_an_id():
    with subprocess.Popen([sys.executable, "-S", "-c", ""]) as process:
        with pytest.raises(AssertionError, match=f"the process {process.pid} ended"):
            until(lambda: False, process.pid)


def test_what_a_process_did_before_its_end_counts(tmp_path):
    file = tmp_path / "made"
    command = [sys.executable, "-S", "-c", f"open({str(file)!r}, 'w')"]
    with subprocess.Popen(command, text=True) as process:
        until(file.exists, process)
