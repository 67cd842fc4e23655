"""Digests of functions and classes in a source file."""

from pathlib import PurePath

import pytest

from agentfly_core.experiment.own_modules import definitions

SOURCE = '''"""A shop."""
import json

PRICES = {"tea": 3}


@cache
def price(name):
    return PRICES[name]  # in cents


async def buy(name):
    """
def text(): a string
    """


class Shop:
    open = True
'''
SHOP = PurePath("my_shop/prices.py")
NAMES = {"my_shop.prices", *(f"my_shop.prices.{name}" for name in ("price", "buy", "Shop"))}


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("@cache", "@lru_cache", "my_shop.prices.price"),
        ("in cents", "in euros", "my_shop.prices.price"),
        ("text()", "words()", "my_shop.prices.buy"),
        ("open = True", "open = False", "my_shop.prices.Shop"),
        ("tea", "coffee", "my_shop.prices"),
        ("import json", "import math", "my_shop.prices"),
    ],
)
def test_an_edit_changes_the_digest_of_its_function(old, new, name):
    before = definitions(SHOP, SOURCE.encode())
    after = definitions(SHOP, SOURCE.replace(old, new).encode())
    assert {*before} == {*after} == NAMES
    assert {key for key in NAMES if before[key] != after[key]} == {name}


def test_both_definitions_of_a_name_count():
    twice = "if True:\n    pass\ndef price():\n    return 1\ndef price():\n    return 2\n"
    first, second = (definitions(SHOP, twice.replace(*r).encode()) for r in ("13", "24"))
    assert len({d["my_shop.prices.price"] for d in (first, second)}) == 2


def test_a_package_has_the_name_of_its_folder():
    parts = definitions(PurePath("my_shop/__init__.py"), b"def open(): ...\n")
    assert {*parts} == {"my_shop", "my_shop.open"}


@pytest.mark.parametrize("source", [b"def price(:\n", b"\x00", b"\xff", b""])
def test_a_file_that_cannot_be_parsed_counts_as_a_whole(source):
    assert {*definitions(SHOP, source)} == {"my_shop.prices"}
    assert definitions(SHOP, source) != definitions(SHOP, source + b"\n# more")
