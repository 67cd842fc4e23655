"""Tools that read and change the files of a Workspace."""

from agentfly_core.authoring.tool import tool
from agentfly_core.environments.workspace import Workspace

MOST_LINES = 50


@tool
async def list_files(*, workspace: Workspace) -> str:
    """List the names of all files."""
    return "\n".join(sorted(workspace.files)) or "There are no files."


@tool
async def read_file(name: str, first: int = 1, last: int = 200, *, workspace: Workspace) -> str:
    """Read lines of a file, each with its number.

    Args:
        name: the file's name, as listed
        first: the number of the first line
        last: the number of the last line
    """
    lines = workspace.text(name).splitlines()
    chosen = enumerate(lines[max(first, 1) - 1 : last], max(first, 1))
    shown = "\n".join(f"{number}\t{line}" for number, line in chosen)
    return shown or f"The file has {len(lines)} lines."


@tool
async def create_file(name: str, text: str, *, workspace: Workspace) -> str:
    """Make a file, or replace all that is in it.

    Args:
        name: a relative name, for example: src/main.py
        text: what shall be in it
    """
    workspace.write(name, text)
    return f"{name} has {len(text.splitlines())} lines."


@tool
async def edit_file(name: str, old: str, new: str, *, workspace: Workspace) -> str:
    """Replace the only place in a file that reads exactly like `old`.

    Args:
        name: the file's name, as listed
        old: what is there now, with enough around it to be found once
        new: what shall be there
    """
    workspace.replace(name, old, new)
    return "Done."


@tool
async def search_files(text: str, *, workspace: Workspace) -> str:
    """Find the lines of all files that contain a text.

    Args:
        text: the text, exactly as it is in the file
    """
    matches = [
        f"{name}:{number}: {line}"
        for name in sorted(workspace.files)
        for number, line in enumerate(workspace.files[name].splitlines(), 1)
        if text in line
    ]
    further = len(matches) - MOST_LINES
    more = [f"[... {further} more lines ...]"] if further > 0 else []
    return "\n".join([*matches[:MOST_LINES], *more]) or "No line contains it."


@tool
async def undo_change(*, workspace: Workspace) -> str:
    """Take the last change of the files back."""
    workspace.undo()
    return "Done."
