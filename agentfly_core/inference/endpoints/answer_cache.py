"""The answers of services, stored before they are used: what was asked once is not asked again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from agentfly_core.store.store import Store
from agentfly_core.system.formats.json_value import JSON, as_json


@dataclass(frozen=True, slots=True)
class Answers:
    """Those in a store, by the digest of what was asked: `Answers(store)`."""

    store: Store

    async def find(self, key: str) -> JSON:
        """The answer under a key, or None; raises Damaged."""
        entry = await asyncio.to_thread(self.store.read_json, _uri(key))
        answer: JSON = entry["answer"] if entry else None
        return answer

    async def keep(self, key: str, answer: Mapping[str, JSON]) -> JSON:
        """Store an answer; returns the one that is there where another was faster."""
        new = await asyncio.to_thread(
            self.store.create_json, _uri(key), {"answer": as_json(answer)}
        )
        return answer if new else await self.find(key)


def _uri(key: str) -> str:
    return f"answers/{key[:2]}/{key}.json"
