"""Values that JSON cannot hold are named with their place."""

import datetime
import json
import random
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from decimal import Decimal
from enum import IntEnum
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from agentfly_core.system.formats.json_value import json_fault
from tests.support.random_values import Values

DAY = datetime.date(2026, 11, 23)


@dataclass
class Place:
    name: str = "Oslo"


class Colour(IntEnum):
    RED = 1


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (DAY, "cannot be stored as JSON: TypeError: Object of type date is not JSON serializable"),
        ({"a": [0, {"b": DAY}]}, "Object of type date is not JSON serializable"),
        ({1: "a", "b": 2}, "has the key 1 (int), expected text"),
        ({"a": [{None: 1}]}, "has the key None (NoneType), expected text"),
        ([0.5, float("nan")], "ValueError: Out of range float values"),
        (float("-inf"), "ValueError: Out of range float values"),
        (np.int64(3), "Object of type int64"),
        (np.zeros(2), "Object of type ndarray"),
        (b"\xff", "Object of type bytes"),
        ({3, 1}, "Object of type set"),
        (MappingProxyType({}), "Object of type mappingproxy"),
        (Place(), "Object of type Place"),
        (Decimal("0.10"), "Object of type Decimal"),
        ([10**5000], "ValueError: Exceeds the limit"),
    ],
)
def test_an_invalid_value_has_its_fault(value: Any, message: str) -> None:
    assert message in str(json_fault(value))


def test_a_value_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    assert "Circular reference detected" in str(json_fault(loop))


@pytest.mark.parametrize(
    "value",
    [
        {"a": [1, 2.5, "x", None, True], "b": {}},
        (1, 2),
        OrderedDict(a=1),
        namedtuple("Pair", "a b")(1, 2),
        np.float64(0.5),
        Colour.RED,
        "\ud800",
        10**99,
    ],
)
def test_a_value_of_json_passes(value: Any) -> None:
    assert json_fault(value) is None
    assert json.loads(json.dumps(value)) is not None


def test_a_value_passes_if_json_reads_it_back() -> None:
    odd = (DAY, b"a", {1}, Place(), float("nan"), float("inf"), Decimal(1), np.int8(1), object())
    value = Values([odd, (0, 1, 0.5), ("", "a")], lambda draw: draw.choice(("a", "b", 1, None)))
    draw, passed = random.Random(7), 0
    for case in range(2000):
        made = value(draw)
        try:
            same = json.loads(json.dumps(made, allow_nan=False)) == made
        except (TypeError, ValueError):
            same = False
        assert (json_fault(made) is None) == same, f"case {case}: {made!r}"
        passed += same
    assert 200 < passed < 1800
