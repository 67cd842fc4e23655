"""The text files of an episode, which are kept in memory."""

import json
from pathlib import PurePosixPath

from agentfly_core.authoring.environment import Environment
from agentfly_core.authoring.tool import ToolError
from agentfly_core.records.trajectory import Problem
from agentfly_core.sandbox.guest.protocol import ExecResult, Limits
from agentfly_core.sandbox.running import run
from agentfly_core.system.formats import hashing

MOST_FILES, MOST_BYTES, MOST_CHANGES = 500, 1_000_000, 100
LONGEST_NAME, LONGEST_PART = 1000, 255  # bytes
# the largest JSON file with the files after a command. One byte can take six bytes in JSON
LONGEST_RECORD = 8 * MOST_BYTES
LIMITS = Limits()
_PROGRAM = """
import json, os, stat, subprocess, sys
with open("command.txt") as file:
    command = file.read()
os.makedirs("work", exist_ok=True)
done = subprocess.run(["sh", "-c", command], cwd="work", stdin=subprocess.DEVNULL)
kept = {}
os.chmod("work", 0o700)
for folder, folders, names in os.walk("work"):
    for path in (os.path.join(folder, name) for name in (*folders, *names)):
        mode = os.lstat(path).st_mode
        if stat.S_ISDIR(mode):
            os.chmod(path, 0o700)
        if stat.S_ISREG(mode):
            os.chmod(path, 0o600)
            with open(path, "rb") as file:
                kept[os.path.relpath(path, "work")] = file.read(1_000_001).decode(errors="replace")
with open("kept.json", "w") as file:
    json.dump(kept, file)
sys.exit(done.returncode if done.returncode >= 0 else 128 - done.returncode)
"""


class Workspace(Environment):
    """The text files of an episode. The `facts` of a problem may contain the initial files:

        {"files": {"main.py": "print(1)\\n", "docs/notes.txt": "To do: everything.\\n"}}

    Methods raise ToolError for mistakes of the model, such as a wrong file name. There may be at
    most 500 files, 500 folders and 1 MB in total.
    """

    async def reset(self, problem: Problem) -> None:
        """Create the problem's files.

        Raises ToolError for a name outside of the workspace, such as "../a".
        """
        self.files: dict[str, str] = {}
        self._before: list[dict[str, str]] = []
        self._become(dict(problem.facts.get("files", {})))
        self._before.clear()

    def text(self, name: str) -> str:
        if name not in self.files:
            raise ToolError(
                f"There is no file {name!r}. There are: {', '.join(sorted(self.files)) or 'none'}."
            )
        return self.files[name]

    def write(self, name: str, text: str) -> None:
        """Create or overwrite a file."""
        self._become({**self.files, name: text})

    def replace(self, name: str, old: str, new: str) -> None:
        """Replace the only occurrence of `old` in a file.

        Raises ToolError if `old` does not occur, or occurs several times.
        """
        if (count := self.text(name).count(old)) != 1:
            raise ToolError(
                f"The file {name!r} contains {old!r} {count} times, expected once: "
                f"{'add the text around it' if count else 'copy the text from the file'}."
            )
        self.write(name, self.files[name].replace(old, new))

    def undo(self) -> None:
        """Undo the last method call or shell command that changed the files."""
        if not self._before:
            raise ToolError("Cannot undo: every stored change is already undone.")
        self.files = self._before.pop()

    async def run(self, command: str) -> ExecResult:
        """Run a shell command in a sandbox that contains the files of the workspace.

        The command may change the files. If the command is killed, its changes are discarded.
        Raises Unavailable if no sandbox is available.
        """
        given = {f"work/{name}": text for name, text in self.files.items()}
        given["command.txt"] = command
        result = await run(_PROGRAM, given, limits=LIMITS, collect=["kept.json"])
        if len(kept := result.files.get("kept.json", b"")) > LONGEST_RECORD:
            raise ToolError(
                f"The command left more than {MOST_BYTES} bytes, so its changes were discarded."
            )
        # a killed command has written no result, and changes no file
        if kept:
            self._become(json.loads(kept))
        return result

    async def snapshot(self) -> bytes:
        """Return the current files, and the earlier versions that `undo` can restore."""
        return json.dumps([*self._before, self.files]).encode()

    async def restore(self, snapshot: bytes) -> None:
        *self._before, self.files = json.loads(snapshot)

    def state_key(self) -> str:
        return hashing.digest(self.files)

    def _become(self, files: dict[str, str]) -> None:
        for name in files:
            path = PurePosixPath(name)
            parts = [len(part.encode(errors="replace")) for part in name.split("/")]
            if max(parts) > LONGEST_PART or sum(parts) > LONGEST_NAME:
                raise ToolError(
                    f"Got a file name of {sum(parts)} bytes, expected at most {LONGEST_NAME}, with "
                    f"at most {LONGEST_PART} in each part of the path."
                )
            leads_out = path.is_absolute() or {"..", "."} & {*path.parts}
            if leads_out or str(path) != name or not name.isprintable() or not name:
                raise ToolError(
                    f"Got the file name {name!r}, expected a relative one such as 'docs/notes.txt'."
                )
        folders = {str(folder) for name in files for folder in PurePosixPath(name).parents}
        if both := files.keys() & folders:
            raise ToolError(f"{min(both)!r} cannot be both a file and a folder.")
        size = sum(len(name.encode()) for name in files)
        size += sum(len(text.encode(errors="replace")) for text in files.values())
        # folders fill the disk of a sandbox, too
        if max(len(files), len(folders)) > MOST_FILES or size > MOST_BYTES:
            raise ToolError(
                f"{len(files)} files of {size} bytes in {len(folders)} folders are too many, "
                f"expected at most {MOST_FILES} files, {MOST_BYTES} bytes and {MOST_FILES} folders."
            )
        if files != self.files:
            self._before = [*self._before[-MOST_CHANGES:], self.files]
            self.files = files
