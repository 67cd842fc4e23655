"""A project of one's own: its files, and the packages that it needs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

SHIPPED = Path(__file__).resolve().parents[1]
TEMPLATE, LISTS = SHIPPED / "project_template", SHIPPED / "requirements"


def init(folder: Annotated[Path, Parameter(name="DIR")], /) -> None:
    """Write a small project with a tool, a reward and tests.

    For example `agentfly init my_project`.

    Args:
        folder: where; made if missing
    """
    files = template()
    if there := [name for name in files if (folder / name).exists()]:
        raise ValueError(
            f"{folder} has {', '.join(there)} already, and nothing was written. Give another "
            "folder; what you want of the rest can be copied from there."
        )
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    if shutil.which("git"):
        inside = ["git", "rev-parse", "--is-inside-work-tree"]
        if subprocess.run(inside, cwd=folder, capture_output=True, check=False).returncode:
            subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
    print(f"{folder} has {', '.join(sorted(files))}. Read its README.md, then, in it:")
    print("agentfly train market")


def template() -> dict[str, str]:
    """Return the files of a new project by path; shipped files end in .txt, `dot-` is a dot."""
    return {
        str(path.relative_to(TEMPLATE)).removesuffix(".txt").replace("dot-", "."): path.read_text()
        for path in sorted(TEMPLATE.rglob("*.txt"))
    }


def requirements(machine: Literal["cpu", "gpu"], /) -> None:
    """Print the packages that were tested together.

    For example `agentfly requirements cpu`.

    Args:
        machine: the hardware that vLLM runs on
    """
    print((LISTS / f"{machine}.txt").read_text(), end="")
