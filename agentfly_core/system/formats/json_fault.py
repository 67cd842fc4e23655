"""Locating the first part of a value that JSON cannot hold, with a hint at the way out."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator

from agentfly_core.system.formats.text import fault, shown, with_article

EXPECTED = "text, numbers, True, False, None, and lists and dicts (with text as keys) of these"
WAYS_OUT = {
    "isoformat": "write it as text, `value.isoformat()`",
    "tolist": "write it with plain numbers and lists, `value.tolist()`",
    "decode": "write it as text, `value.decode()`",
    "as_tuple": "write it as text, `str(value)`, or as a number, `float(value)`",
    "isdisjoint": "write it as a list, `sorted(value)`",
    "items": "write it as a dict, `dict(value)`",
    "__dataclass_fields__": "write it as a dict, `dataclasses.asdict(value)`",
    "__next__": "write it as a list, `list(value)`",
}
"""What to do with a value of a type that has this attribute."""


def json_fault(value: object) -> str | None:
    """What in a value is no JSON, as a text that follows the value's name, or None.

    Of `{"seen": [date(2026, 11, 23)]}` it says

        ['seen'][0] is datetime.date(2026, 11, 23), a date: write it as text, `value.isoformat()`

    A tuple passes: it is read back as a list.
    """
    try:
        message = next(_faults(value, ""), None)
        if message is None:
            json.dumps(value, allow_nan=False)
    except RecursionError:
        return " is nested too deep, or holds itself"
    except Exception as error:  # an int of 5,000 digits, or whatever an author's type raises
        return f" cannot be written: {fault(error)}"
    return message


def _faults(value: object, where: str) -> Iterator[str]:
    match value:
        case None | bool() | str() | int():
            return
        case float():
            if not math.isfinite(value):
                yield f"{where} is {value}, which is no number of JSON: leave it out, or write None"
        case dict():
            for key, held in value.items():
                if isinstance(key, str):
                    yield from _faults(held, f"{where}[{shown(key)}]")
                else:
                    kind = with_article(type(key).__name__)
                    yield (
                        f"{where} has the key {shown(key)}, which is no text but {kind}: keys are "
                        "text, `str(key)`"
                    )
        case list() | tuple():
            for position, held in enumerate(value):
                yield from _faults(held, f"{where}[{position}]")
        case _:
            ways = [hint for name, hint in WAYS_OUT.items() if hasattr(type(value), name)]
            out = ways[0] if ways else f"write {EXPECTED}"
            yield f"{where} is {shown(value)}, {with_article(type(value).__name__)}: {out}"
