"""Find the lines in a user's code that caused an error."""

import inspect
import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path

OURS = tuple(
    Path(__file__).resolve().parents[3] / name for name in ("agentfly_core", "flows", "tasks")
)
PYTHON = tuple(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "scripts"))
INSTALLED = {"site-packages", "dist-packages"}


def own_line(error: BaseException) -> str | None:
    """Return the innermost line of a traceback that is in the user's own code:
    "/home/ada/shop.py:12 in react". Return None if the traceback has only other lines.
    """
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if _own(frame)]
    return f"{own[-1].filename}:{own[-1].lineno} in {own[-1].name}" if own else None


def trace(error: BaseException) -> str:
    """Return the lines of a traceback, beginning with the first line of the user's code.

    Lines in installed packages and in Python's standard library are removed, except the last line.
    Without a line of the user's code, the text begins with the first line that is not removed.
    """
    everything = traceback.extract_tb(error.__traceback__)
    begin = next((number for number, frame in enumerate(everything) if _own(frame)), 0)
    frames = everything[begin:]
    kept = [frame for frame in frames if not _installed(frame) or frame is frames[-1]]
    return "".join(traceback.format_list(kept)).rstrip()


def defined(function: Callable[..., object]) -> str:
    """Return the place where a function, or the class of a callable object, is defined:
    "/home/ada/shop/agents.py:9".
    """
    written = inspect.unwrap(function if hasattr(function, "__code__") else type(function).__call__)
    return f"{written.__code__.co_filename}:{written.__code__.co_firstlineno}"


def _own(frame: traceback.FrameSummary) -> bool:
    return not (_installed(frame) or _below(frame, OURS))


def _installed(frame: traceback.FrameSummary) -> bool:
    return not INSTALLED.isdisjoint(Path(frame.filename).parts) or _below(frame, PYTHON)


def _below(frame: traceback.FrameSummary, folders: tuple[Path, ...]) -> bool:
    path = Path(frame.filename).resolve()
    return frame.filename.startswith(("<frozen", "<string>")) or any(
        path.is_relative_to(folder) for folder in folders
    )
