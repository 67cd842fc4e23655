"""A strict parser for JSON that models write.

All values that `parse` returns can be stored and tokenized.
"""

import json
import math
from typing import NoReturn

from agentfly_core.system.formats.json_value import JSON, map_strings, require_levels

MAX_BYTES = 65_536
MAX_DEPTH = 32
MAX_DIGITS = 100


def parse(text: str, max_bytes: int = MAX_BYTES) -> JSON:
    """Parse a JSON text. Raises ValueError for invalid JSON.

    Also raises ValueError if the text has one of the following:

    - more than `max_bytes` bytes of UTF-8
    - more than MAX_DEPTH levels
    - NaN, infinities, and integers with more than MAX_DIGITS digits
    - repeated keys of an object
    - the character NUL and lone surrogates
    """
    if (size := len(text.encode("utf-8", errors="surrogatepass"))) > max_bytes:
        raise ValueError(f"it has {size} bytes, at most {max_bytes} are read")
    try:
        value: JSON = json.loads(
            text,
            object_pairs_hook=without_repetition,
            parse_constant=refuse_constant,
            parse_int=_integer,
            parse_float=_number,
        )
    except RecursionError:
        raise ValueError(f"it is more than {MAX_DEPTH} levels deep") from None
    require_levels(value, MAX_DEPTH)
    return map_strings(value, _storable)


def without_repetition(pairs: list[tuple[str, JSON]]) -> dict[str, JSON]:
    """Return the pairs of a JSON object as a dict. Raises ValueError if a key is repeated."""
    mapping: dict[str, JSON] = {}
    for key, value in pairs:
        if key in mapping:
            raise ValueError(f"the key {key[:80]!r} is given twice")
        mapping[key] = value
    return mapping


def refuse_constant(name: str) -> NoReturn:
    """Raise ValueError. The JSON parser calls this function for NaN and infinities."""
    raise ValueError(f"{name} is no JSON number")


def _integer(digits: str) -> int:
    if (count := len(digits.lstrip("-"))) > MAX_DIGITS:
        raise ValueError(f"an integer has {count} digits, at most {MAX_DIGITS} are read")
    return int(digits)


def _number(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"the number {text[:80]} is too large")
    return number


def _storable(text: str) -> str:
    if "\0" in text:
        raise ValueError("a string contains NUL")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError("a string contains half of a surrogate pair")
    return text
