"""`make test` passes only on a suite that passed."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
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
