"""`make test` passes only on a suite that passed, and `make` installs again what was installed."""

import subprocess

import pytest

from tests.support.project import ROOT

PYTEST = '#!/bin/sh\necho "$@" >> {calls}\n[ "$4" ] || exit {code}\n'


@pytest.mark.parametrize(("code", "runs", "passes"), [(0, 1, True), (1, 2, True), (2, 1, False), (137, 1, False)])
def test_only_tests_that_failed_are_run_again(tmp_path, code, runs, passes):
    (tmp_path / "bin").mkdir()
    calls = tmp_path / "calls"
    for name, text in (("ruff", "#!/bin/sh"), ("mypy", "#!/bin/sh"), ("python", PYTEST.format(calls=calls, code=code))):
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / ".installed").touch()
    done = subprocess.run(["make", "test", f"VENV={tmp_path}"], cwd=ROOT, capture_output=True, check=False)
    assert len(calls.read_text().splitlines()) == runs
    assert (done.returncode == 0) == passes


@pytest.mark.parametrize(
    ("installed", "said", "expected"),
    [(None, "", "cpu"), ("", "", "cpu"), (None, "gpu", "gpu"), ("gpu", "", "gpu")],
)
def test_what_was_installed_is_what_is_installed_again(tmp_path, installed, said, expected):
    if installed is not None:
        (tmp_path / ".installed").write_text(f"requirements/{installed}.txt\n" if installed else "")
    words = [f"VENV={tmp_path}", *([f"REQUIREMENTS=requirements/{said}.txt"] if said else [])]
    done = subprocess.run(
        ["make", "--dry-run", "--always-make", "install", *words], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert f"--no-deps -r requirements/{expected}.txt" in done.stdout
    assert f"echo requirements/{expected}.txt > {tmp_path}/.installed" in done.stdout


@pytest.mark.parametrize("installed", ["", "requirements/cpu.txt\n"])
def test_another_list_is_not_installed_over_what_is_there(tmp_path, installed):
    (tmp_path / ".installed").write_text(installed)
    words = ["make", "install", f"VENV={tmp_path}", "REQUIREMENTS=requirements/gpu.txt"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "was installed from requirements/cpu.txt; for requirements/gpu.txt remove it first" in done.stderr
