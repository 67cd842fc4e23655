"""A worker that gives calls without a limit of their own six seconds."""

import sys

from agentfly_core.authoring import author_call, event_loop
from agentfly_core.pipeline import services
from agentfly_core.pipeline.workers import program
from agentfly_core.rollout import pool, shard

SECONDS = 6.0

if __name__ == "__main__":
    event_loop.LONGEST = author_call.LONGEST = SECONDS
    services.LEASE_SECONDS = shard.LEASE_SECONDS = pool.CLOSE_SECONDS = SECONDS
    program.main(*map(int, sys.argv[1:]))
