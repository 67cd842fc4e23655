"""Running Python written by a model, isolated from this machine: the public names."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentfly_core.sandbox.guest.protocol import ExecResult, Limits, Status
    from agentfly_core.sandbox.running import run, session

_PROTOCOL, _RUNNING = "agentfly_core.sandbox.guest.protocol", "agentfly_core.sandbox.running"
_HOMES = {
    "Limits": _PROTOCOL,
    "ExecResult": _PROTOCOL,
    "Status": _PROTOCOL,
    "run": _RUNNING,
    "session": _RUNNING,
}
__all__ = ["ExecResult", "Limits", "Status", "run", "session"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
