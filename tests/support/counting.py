"""An environment with a state of one number."""

from agentfly_core.authoring.environment import Environment
from agentfly_core.records.trajectory import Problem


class Count(Environment):
    async def reset(self, problem: Problem) -> None:
        self.count = 0

    async def snapshot(self) -> bytes:
        return str(self.count).encode()

    async def restore(self, snapshot: bytes) -> None:
        self.count = int(snapshot)
