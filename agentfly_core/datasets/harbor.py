"""Make problems from tasks of the benchmarks Harbor and terminal-bench. Each task is a folder.

| | Harbor | terminal-bench |
|---|---|---|
| instruction | `instruction.md` | `instruction` of `task.yaml` |
| settings | `task.toml` | `task.yaml` |
| image | `environment/Dockerfile` | `Dockerfile` |
| check | `tests/test.sh` | `run-tests.sh`, `tests` |
"""

import ast
import random
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Set
from pathlib import Path, PurePosixPath
from typing import Any

from agentfly_core.environments.workspace import MOST_BYTES, MOST_FILES
from agentfly_core.records.dataset import BadRow
from agentfly_core.records.trajectory import Problem
from agentfly_core.system.formats import strict_yaml
from agentfly_core.system.formats.json_value import JSON
from agentfly_core.system.formats.text import counted

APP = PurePosixPath("/app")
SECONDS, MOST_SECONDS = 60.0, 600.0
LABELS = ("category", "difficulty")
"""Settings of a task that become entries of `Problem.facts`, for use in `evaluate.by`."""
# matches images that contain only a shell and Python, as the sandbox does
_BARE = re.compile(
    r"(?:(?:[\w.-]+/)*library/)?(?:ubuntu|debian|python|bash)(?::[\w.-]+)?"
    r"|(?:[\w.-]+/)*t-bench/(?:ubuntu|python)-[\d-]+(?::[\w.-]+)?"
)
# a check that calls these would always fail here
_REFUSED = re.compile(
    r"\b(apt|apt-get|apk|conda|curl|docker|git|npm|pip|pip3|pytest|uv|uvx|wget)\b(?![.\w/-])"
)
_COMMENT = re.compile(r"(?:^|\s)#.*")
PROGRAMS = ("", ".sh", ".bash", ".py")
"""File suffixes of programs among the test files of a task."""
WHY_NOT = (
    "a check has no network and no packages, and cannot rely on git, which the workspace's .git "
    "controls"
)
# files and folders that contain the check or the solution of a task
_HIDDEN = ("tests", "solution.sh", "solution.yaml", "run-tests.sh", "task.yaml")


class RefusedTask(Exception):
    """Error for a task that cannot be played in the sandbox.

    `path` and `line` are the file and the line with the reason.
    """

    def __init__(self, path: Path, why: str, line: int = 1) -> None:
        super().__init__(why)
        self.path, self.line = path, line


def harbor(
    seed: int, train: int, validation: int, test: int, folder: Path
) -> dict[str, list[Problem | BadRow]]:
    """Make problems for each split from a folder that contains one folder for each task:

        Problem("count-words", "Write how many words notes.txt has to /app/count.txt.", {
            "files": {"notes.txt": "..."},
            "check": {"files": {"test.sh": "..."}, "script": "test.sh", "by_exit_code": False,
                "seconds": 60.0},
            "category": "files",
        })

    Such problems need the reward `rewards.folder:hidden_check`. The sandbox does not start
    containers. A task that cannot be played without a container becomes a BadRow. The BadRow names
    the file and the line with the reason. There are two common reasons:

    - The Dockerfile uses an image with more than a shell and Python, or it does more than copy text
      files into /app.
    - The check (the tests of the task) needs a network, a package or git.
    """
    if not folder.is_dir():
        raise ValueError(
            f"folder: got {str(folder)!r}, expected a folder that contains one folder per task."
        )
    problems, bad = list[Problem](), list[BadRow]()
    # sorted, because the order of files differs between machines
    for path in filter(Path.is_dir, sorted(folder.iterdir())):
        try:
            is_harbor = (path / "task.toml").exists()
            problems.append(_harbor(path) if is_harbor else _terminal_bench(path))
        except RefusedTask as refused:
            bad.append(BadRow(str(refused.path.relative_to(folder)), refused.line, str(refused)))
    random.Random(seed).shuffle(problems)
    built: dict[str, list[Problem | BadRow]] = {}
    for split, size in {"test": test, "validation": validation, "train": train}.items():
        built[split], problems = [*problems[:size]], problems[size:]
    built["train"] += bad
    return built


def _harbor(folder: Path) -> Problem:
    settings = folder / "task.toml"
    try:
        document = tomllib.loads(_text(settings))
    except tomllib.TOMLDecodeError as error:
        raise RefusedTask(settings, f"invalid TOML: {error}") from None
    image = _section(settings, document, "environment").get("docker_image")
    if image is not None and not _BARE.fullmatch(image):
        raise RefusedTask(settings, f"docker_image is {image}, expected an image such as ubuntu")
    if (several := folder / "environment/docker-compose.yaml").exists():
        raise RefusedTask(several, "it needs several containers")
    script = folder / "tests/test.sh"
    if "/logs/verifier/reward.txt" not in _text(script):
        raise RefusedTask(script, "the script must write /logs/verifier/reward.txt")
    seconds = _section(settings, document, "verifier").get("timeout_sec", SECONDS)
    check = _check(folder, script, _seconds(settings, seconds))
    instruction = _text(folder / "instruction.md").strip()
    metadata = _section(settings, document, "metadata")
    return _problem(folder, instruction, metadata, folder / "environment", check)


def _problem(
    folder: Path, instruction: str, settings: Mapping[str, Any], context: Path, check: JSON
) -> Problem:
    labels = {key: str(settings[key]) for key in LABELS if key in settings}
    return Problem(folder.name, instruction, {"files": _copied(context), "check": check, **labels})


def _section(settings: Path, document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a section of a task's settings, or an empty mapping for a missing or empty section.

    Raises RefusedTask if the section is neither empty nor a mapping.
    """
    section = document.get(name) or {}
    if not isinstance(section, Mapping):
        raise RefusedTask(settings, f"{name} is {section!r}, expected a mapping")
    return section


def _terminal_bench(folder: Path) -> Problem:
    settings, containers = folder / "task.yaml", folder / "docker-compose.yaml"
    document = _yaml(settings)
    if containers.exists() and len(_section(containers, _yaml(containers), "services")) > 1:
        raise RefusedTask(containers, "it needs several containers")
    seconds = _seconds(settings, document.get("max_test_timeout_sec", SECONDS))
    if not isinstance(instruction := document.get("instruction"), str):
        raise RefusedTask(settings, "the instruction is missing")
    check = _check(folder, folder / "run-tests.sh", seconds)
    return _problem(folder, instruction.strip(), document, folder, check)


def _check(folder: Path, script: Path, seconds: float) -> JSON:
    tests = folder / "tests"
    own = {name for path in _files(tests) for name in (path.stem, path.parent.name)}
    for path in dict.fromkeys([script, *_files(tests)]):
        if path.suffix in PROGRAMS:
            _require_alone(path, own | sys.stdlib_module_names)
    files = {str(path.relative_to(tests)): _text(path) for path in _files(tests)}
    return {
        "files": files | {script.name: _text(script)},
        "script": script.name,
        "by_exit_code": script.parent == folder,
        "seconds": seconds,
    }


def _require_alone(program: Path, modules: Set[str]) -> None:
    """Raise RefusedTask if a program of a check cannot run in the sandbox.

    A program is refused if it imports a module that is not in `modules`, or calls a command that
    needs a network or an installed package, such as curl.
    """
    for number, name in _imports(program) if program.suffix == ".py" else ():
        if name not in modules:
            raise RefusedTask(program, f"it imports {name}: {WHY_NOT}", number)
    for number, line in enumerate(_text(program).splitlines(), 1):
        if match := _REFUSED.search(_COMMENT.sub("", line)):
            raise RefusedTask(program, f"it calls {match[1]}: {WHY_NOT}", number)


def _imports(program: Path) -> Iterator[tuple[int, str]]:
    """Yield the line number and the top-level name of each import of a Python program.

    `import os.path` in line 3 gives `(3, "os")`. Relative imports are left out. Invalid Python is
    treated as a program without imports.
    """
    try:
        tree = ast.parse(_text(program))
    except (SyntaxError, ValueError):  # Python 3.11 has a ValueError for null bytes
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name.partition(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.lineno, node.module.partition(".")[0]


def _seconds(settings: Path, limit: object) -> float:
    """Return the time limit of a check in seconds: the limit of the task, but at most 600.

    Raises RefusedTask if the limit is not a positive number.
    """
    if not isinstance(limit, int | float) or not limit > 0:
        raise RefusedTask(settings, f"the check's time limit is {limit!r} s, expected more than 0")
    return min(float(limit), MOST_SECONDS)


def _copied(context: Path) -> dict[str, str]:
    """Return the files that a Dockerfile copies into /app, as a mapping of their names to their
    texts.

    Raises RefusedTask for an instruction that `_laid_out` refuses, such as `RUN`, and for too many
    or too large files.
    """
    dockerfile, files = context / "Dockerfile", dict[str, str]()
    for number, instruction in _instructions(dockerfile) if dockerfile.exists() else ():
        try:
            files |= _laid_out(context, instruction.split())
        except ValueError as error:
            raise RefusedTask(dockerfile, f"{instruction}: {error}", number) from None
    size = sum(len(name.encode()) + len(text.encode()) for name, text in files.items())
    if len(files) > MOST_FILES or size > MOST_BYTES:
        most = f"at most {MOST_FILES} files and {MOST_BYTES} bytes"
        own = f"{counted(len(files), 'file')} of {size} bytes"
        raise RefusedTask(dockerfile, f"got {own}, expected {most}")
    return files


def _laid_out(context: Path, instruction: list[str]) -> dict[str, str]:
    """Return the files that an instruction of a Dockerfile copies.

    The result maps the names of the files to their texts. Raises ValueError for any instruction
    except `FROM` with a plain image, `WORKDIR /app` and `COPY` into /app. Also raises ValueError if
    `COPY` names a missing file, a symbolic link, or the tests or the solution of the task.
    """
    match instruction[0].upper(), instruction[1:]:
        case "FROM", [image] if _BARE.fullmatch(image):
            return {}
        case "WORKDIR", ["/app" | "/app/"]:
            return {}
        case "COPY", [*sources, target] if sources:
            return _copy(context, sources, target)
    raise ValueError(
        "this instruction needs a container, and these tasks run without containers. A Dockerfile "
        "may contain only `FROM` with an image of ubuntu, debian, python or bash, `WORKDIR /app`, "
        "and `COPY` into /app"
    )


def _copy(context: Path, sources: list[str], target: str) -> dict[str, str]:
    place, files = APP / target, dict[str, str]()
    if not place.is_relative_to(APP) or ".." in place.parts:
        raise ValueError("expected a target in /app")
    into = target.endswith(("/", ".")) or place == APP or len(sources) > 1
    for source in sources:
        path = context / source.lstrip("/")
        if source.startswith("-") or ".." in path.parts or path.is_symlink() or not path.exists():
            raise ValueError(
                f"{source} is missing in the folder of the Dockerfile, or is a symbolic link"
            )
        for file in _files(path):
            if file.relative_to(context).parts[0] in _HIDDEN:
                raise ValueError(
                    "this instruction copies the tests or the solution, which the model must not "
                    "see; copy only other files"
                )
            name = file.relative_to(path) if path.is_dir() else path.name if into else ""
            files[str((place / name).relative_to(APP))] = _text(file)
    return files


def _instructions(dockerfile: Path) -> Iterator[tuple[int, str]]:
    """Yield each instruction of a Dockerfile: the number of its first line, and its text."""
    begun, parts = 0, list[str]()
    for number, line in enumerate(_text(dockerfile).splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        begun = begun if parts else number
        parts.append(line.strip().removesuffix("\\"))
        if not line.rstrip().endswith("\\"):
            yield begun, " ".join(" ".join(parts).split())
            parts = []


def _files(path: Path) -> list[Path]:
    """Return all files and links below a folder. For a file, return only its own path."""
    if path.is_file():
        return [path]
    return sorted(file for file in path.rglob("*") if file.is_symlink() or not file.is_dir())


def _yaml(path: Path) -> dict[str, Any]:
    try:
        document = strict_yaml.parse(_text(path), path.name)
    except ValueError as error:
        raise RefusedTask(path, str(error)) from None
    if not isinstance(document, dict):
        raise RefusedTask(path, "expected a mapping")
    return document


def _text(path: Path) -> str:
    if path.is_symlink() or not path.is_file():
        raise RefusedTask(path, "missing, expected a file that is not a link")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise RefusedTask(path, "it is not text") from None
