"""Derive digests, names and seeds from hashes. Equal inputs always give equal outputs."""

import hashlib
import json

from agentfly_core.system.formats.json_value import JSON

# `json.dumps` would create an encoder in each call, which doubles its time
_CANONICAL = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
)


def digest(value: JSON) -> str:
    """Return the SHA-256 digest of a JSON value, as 64 hex digits.

    Raises TypeError if the value is not JSON, and ValueError for NaN and infinity.
    """
    return hashlib.sha256(_CANONICAL.encode(value).encode()).hexdigest()


def seed(*parts: int | str) -> int:
    """Derive a seed in [0, 2**63) from numbers and texts, such as `seed(0, 7, "add-41-58")`."""
    return int(digest(list(parts))[:16], 16) >> 1


def short(*parts: int | str) -> str:
    """Derive a name of 16 hex digits from numbers and texts, such as `short(7, "add-41-58")`."""
    return digest(list(parts))[:16]
