"""Make virtual environments of other projects once, in the user's cache folder."""

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path


def python_of(name: str, *requirements: str) -> Path:
    """Return the Python interpreter of a virtual environment.

    Make the environment if it is missing. `requirements` are requirements and options of pip.
    Raises CalledProcessError if pip fails; the error's `stderr` has the messages of pip.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    folder = cache / "agentfly" / name
    python, whole = folder / "bin" / "python", folder / "whole"
    if not whole.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", *requirements]
        try:
            subprocess.run(pip, check=True, stderr=subprocess.PIPE, text=True)
        except subprocess.CalledProcessError as error:
            error.add_note(error.stderr)
            raise
        whole.touch()
    return python


def trl(release: str) -> Path:
    """Return the Python interpreter of a virtual environment with this release of TRL.

    It has the same versions of torch, transformers and accelerate as this environment.
    """
    ours = [f"{package}=={version(package)}" for package in ("torch", "transformers", "accelerate")]
    return python_of(f"trl-{release}", *ours, f"trl=={release}")
