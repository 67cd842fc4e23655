"""A worker that gives calls without a limit of their own six seconds."""

import sys

from agentfly_core.authoring import event_loop, time_limits
from agentfly_core.pipeline import services
from agentfly_core.pipeline.workers import program
from agentfly_core.rollout import pool, shard

SECONDS = 6.0

if __name__ == "__main__":
    event_loop.LONGEST = time_limits.LONGEST = SECONDS
    services.LEASE_SECONDS = shard.LEASE_SECONDS = pool.CLOSE_SECONDS = SECONDS
    program.main(*map(int, sys.argv[1:]))
