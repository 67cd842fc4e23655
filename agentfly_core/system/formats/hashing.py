"""Derive names and seeds by hashing, independent of timing, paths, clocks and machines."""

import hashlib
import json

from agentfly_core.system.formats.json_value import JSON

# `json.dumps` would create an encoder in each call, which doubles its time
_CANONICAL = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
)


def digest(value: JSON) -> str:
    """Return the sha256 (64 hex digits) of a JSON value. Raises TypeError for other values."""
    return hashlib.sha256(_CANONICAL.encode(value).encode()).hexdigest()


def seed(*parts: int | str) -> int:
    """Derive a seed in [0, 2**63): `seed(experiment_seed, step, problem_id, chain, turn)`."""
    return int(digest(list(parts))[:16], 16) >> 1


def short(*parts: int | str) -> str:
    """Derive a name of 16 hex digits: `short(step, problem_id, chain, agent)`."""
    return digest(list(parts))[:16]
