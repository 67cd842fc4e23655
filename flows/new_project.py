"""Write the files of a new project. The command `agentfly init` uses this module."""

import shutil
import subprocess
from pathlib import Path

TEMPLATE = Path(__file__).with_name("project_template")


def create(folder: Path) -> list[str]:
    """Write a new project into a folder, and return the names of its files.

    If git is installed and the folder is outside of any git repository, `git init` is run in the
    folder. Raises ValueError if one of the files already exists.
    """
    files = template()
    if there := [name for name in files if (folder / name).exists()]:
        raise ValueError(
            f"{folder} already has {', '.join(there)}. Nothing was written. Choose another folder."
        )
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    if shutil.which("git"):
        # a project inside a repository does not get a repository of its own
        inside = ["git", "rev-parse", "--is-inside-work-tree"]
        if subprocess.run(inside, cwd=folder, capture_output=True, check=False).returncode:
            subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
    return sorted(files)


def template() -> dict[str, str]:
    """Return the texts of a new project's files by path.

    The path of a file is made from the path of its template: the suffix `.txt` is removed, and
    `dot-` becomes a dot.
    """
    return {
        str(path.relative_to(TEMPLATE)).removesuffix(".txt").replace("dot-", "."): path.read_text()
        for path in sorted(TEMPLATE.rglob("*.txt"))
    }
