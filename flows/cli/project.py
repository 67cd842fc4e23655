"""A project of one's own: its files, and the packages that it needs."""

from __future__ import annotations

import shutil
import subprocess
from argparse import Namespace
from pathlib import Path

from flows.cli.arguments import Commands

SHIPPED = Path(__file__).resolve().parents[1]
TEMPLATE, LISTS = SHIPPED / "project_template", SHIPPED / "requirements"


def add(commands: Commands) -> None:
    """The commands that begin a project."""
    beginning = commands.add("init", init)
    beginning.add_argument("folder", type=Path, metavar="DIR", help="where; made if missing")
    listing = commands.add("requirements", requirements)
    listing.add_argument(
        "machine", choices=("cpu", "gpu"), help="the hardware that vLLM is to run on"
    )


def init(arguments: Namespace) -> None:
    """Write the project, and make its folder a git repository unless it is in one."""
    folder: Path = arguments.folder
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
    """The files of a new project, by their paths in it; the shipped files end in .txt, and `dot-`
    replaces a dot.
    """
    paths = sorted(path for path in TEMPLATE.rglob("*.txt"))
    return {
        str(path.relative_to(TEMPLATE)).removesuffix(".txt").replace("dot-", "."): path.read_text()
        for path in paths
    }


def requirements(arguments: Namespace) -> None:
    """Print a pinned list, for `pip install --no-deps -r`."""
    print((LISTS / f"{arguments.machine}.txt").read_text(), end="")
