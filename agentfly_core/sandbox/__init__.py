"""Run Python code that a model wrote, in isolation from this machine.

This module contains the public names of the sandbox.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentfly_core.sandbox.guest.protocol import ExecResult as ExecResult
    from agentfly_core.sandbox.guest.protocol import Limits as Limits
    from agentfly_core.sandbox.guest.protocol import Status as Status
    from agentfly_core.sandbox.model_feedback import feedback as feedback
    from agentfly_core.sandbox.running import run as run
    from agentfly_core.sandbox.running import session as session

_HOMES = dict.fromkeys(("ExecResult", "Limits", "Status"), "agentfly_core.sandbox.guest.protocol")
_HOMES |= dict.fromkeys(("run", "session"), "agentfly_core.sandbox.running")
_HOMES["feedback"] = "agentfly_core.sandbox.model_feedback"
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
