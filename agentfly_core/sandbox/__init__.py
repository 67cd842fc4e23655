"""Running Python written by a model, isolated from this machine: the public names."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentfly_core.sandbox.guest.protocol import ExecResult, Limits, Status
    from agentfly_core.sandbox.running import run, session

__all__ = ["ExecResult", "Limits", "Status", "run", "session"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from agentfly_core.sandbox import running  # which the guest must not import
    from agentfly_core.sandbox.guest import protocol

    return getattr(running if hasattr(running, name) else protocol, name)
