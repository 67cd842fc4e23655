"""Running Python that a model wrote, wherever and whenever: the sandbox's one door."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from agentfly_core.sandbox.guest.limits import Limits
from agentfly_core.sandbox.guest.order import Order
from agentfly_core.sandbox.guest.result import ExecResult
from agentfly_core.sandbox.preflight import chosen

Files = Mapping[str, str | bytes]


async def run(
    code: str,
    files: Files | None = None,
    stdin: str | bytes = "",
    limits: Limits | None = None,
    collect: Sequence[str] = (),
) -> ExecResult:
    """Run Python in a sandbox of its own, with nothing of this machine in reach; many may run at the same time.

        result = await run("print(open('a.txt').read().upper())", files={"a.txt": "hello"})
        result.status, result.stdout        # Status.OK, "HELLO\\n"

    `files` lie in its working directory by relative name, `collect` names those to bring back. It starts as
    main.py in a fresh interpreter state, numpy imported where it is installed. At most 32 run at once; the others
    wait, and waiting does not count. Raises Unavailable, with what to do, where no sandbox works, and ValueError for
    a file name outside.
    """
    sandbox = await asyncio.to_thread(chosen)
    given = {name: as_bytes(content) for name, content in (files or {}).items()}
    return await sandbox.execute(Order(as_bytes(code), given, as_bytes(stdin), tuple(collect), limits or Limits()))


def as_bytes(content: str | bytes) -> bytes:
    """Code or content as UTF-8; what is none, such as half a pair of surrogates, is written out."""
    return content.encode(errors="backslashreplace") if isinstance(content, str) else content
