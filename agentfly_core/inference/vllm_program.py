"""vLLM's own OpenAI-compatible server, with all its options, started faster on CPU and ending when its engine is dead.

As it comes, it waits for its open requests when the engine has died, some of which nobody will ever answer, and a
supervisor would wait with it. On CPU it lets the engine import everything again, which a fork has already: 7 of 17
seconds of CPU and 0.3 GiB. (It wants fresh processes only for workers apart from the engine, which there are none.)
An adapter is applied as matrix products, see vllm_adapter.
"""

from __future__ import annotations

import multiprocessing
from functools import partial

from agentfly_core.inference import vllm_adapter

GRACE = 3


def main() -> None:
    """Serve until told to end, or until the engine is dead."""
    from vllm.entrypoints.launchers.api_server import entry
    from vllm.platforms import current_platform
    from vllm.v1.engine import utils

    if current_platform.is_cpu():
        vllm_adapter.install()
        utils.get_mp_context = partial(multiprocessing.get_context, "fork")  # type: ignore[attr-defined]
    entry.run_server = partial(entry.run_server, timeout_graceful_shutdown=GRACE)
    entry.main()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
