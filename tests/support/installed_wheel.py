"""An environment with the wheel of this project; its dependencies are those of the tests."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from tests.support.project import PROGRAMS, ROOT

BUILT = ("agentfly_core", "flows", "tasks", "requirements")
BESIDE = ("pyproject.toml", "README.md", "LICENSE", "Makefile")


def installed(folder: Path) -> Path:
    """Build the wheel with `make wheel`, and install it; returns the Python of its environment."""
    source = folder / "source"
    for name in BUILT:
        shutil.copytree(ROOT / name, source / name, symlinks=True)
    for name in BESIDE:
        shutil.copy(ROOT / name, source)
    outer = ("MAKE", "SHORT")  # of the `make` that runs these tests
    env = {name: value for name, value in os.environ.items() if not name.startswith(outer)}
    # used instead of .venv, which would be installed first
    words = ["make", "--silent", "wheel", f"BIN={PROGRAMS}", "INSTALLED="]
    subprocess.run(words, cwd=source, env=env, check=True)
    (wheel,) = (source / "dist").glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    python = folder / "venv/bin/python"
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", "--python", python]
    subprocess.run([*pip, "install", "--no-deps", "--no-index", wheel], check=True)
    shutil.rmtree(source)
    packages = sysconfig.get_path("purelib", vars={"base": str(folder / "venv")})
    # a line in a .pth file ignores the editable installations there
    Path(packages, "beside.pth").write_text(sysconfig.get_path("purelib"))
    return python
