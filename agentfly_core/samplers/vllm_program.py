"""vLLM's own OpenAI-compatible server (all its options), made to end when its engine has died.

As it comes, it then waits for open requests, some of which nobody will ever answer; a supervisor would wait with it.
"""

from __future__ import annotations

from functools import partial

GRACE = 3


def main() -> None:
    """Serve until told to end, or until the engine is dead."""
    from vllm.entrypoints.launchers.api_server import entry

    entry.run_server = partial(entry.run_server, timeout_graceful_shutdown=GRACE)
    entry.main()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
