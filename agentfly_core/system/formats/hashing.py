"""Make names and seeds by hashing, so that they do not depend on arrival order, paths, clocks or
machines.
"""

import hashlib
import json

from agentfly_core.system.formats.json_value import JSON

# `json.dumps` would create an encoder in each call, which doubles its time
_CANONICAL = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
)


def digest(value: JSON) -> str:
    """The sha256 (64 hex digits) of a JSON value; raises TypeError for other values."""
    return hashlib.sha256(_CANONICAL.encode(value).encode()).hexdigest()


def seed(*parts: int | str) -> int:
    """A seed in [0, 2**63): `seed(experiment_seed, step, problem_id, chain, turn)`."""
    return int(digest(list(parts))[:16], 16) >> 1


def short(*parts: int | str) -> str:
    """A name of 16 hex digits: `short(step, problem_id, chain, agent)`."""
    return digest(list(parts))[:16]
