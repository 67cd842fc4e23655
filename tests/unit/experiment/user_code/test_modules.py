"""What a digest of code is of: the author's own modules, versions, and what is run of them."""

import sys

import pytest

from agentfly_core.experiment.user_code import stored
from agentfly_core.experiment.user_code.difference import differences
from agentfly_core.experiment.user_code.finding import code_of
from agentfly_core.experiment.user_code.modules import Code, Module
from agentfly_core.experiment.user_code.syntax import definitions, digest

TOOLS = b"import numpy\nfrom my_prices import PRICES\n\ndef lookup(key):\n    return PRICES[key]\n"


def module(name, text, suffix=".py"):
    return Module(name, suffix, False, text.encode() if isinstance(text, str) else text)


def shop(prices="PRICES = {1: 2}\n", version="2.4.1", files=()):
    modules = [module("my_tools", TOOLS), module("my_prices", prices)]
    return Code(
        {"my_tools"}, {each.name: each for each in modules}, {"numpy": version}, dict(files)
    )


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_another_version_of_an_installed_package_is_other_code():
    assert shop().digest("my_tools") == shop().digest("my_tools")
    assert shop(version="2.4.2").digest("my_tools") != shop().digest("my_tools")
    assert shop(version="2.4.2").digest("my_prices") == shop().digest("my_prices")


def test_a_compiled_module_counts_by_its_bytes():
    one, other = (module("fast", content, ".so") for content in (b"\x7fELF\0a", b"\x7fELF\0b"))
    assert one.digest != other.digest
    assert one.imports == {"fast"}


def test_one_number_is_not_another_of_another_type():
    assert len({digest(f"X = {text}".encode()) for text in ("1", "1.0", "True", "'1'", "1j")}) == 5


def test_a_sum_of_three_thousand_terms_has_a_digest():
    assert digest(b"X = " + b"+".join([b"1"] * 3000)) != digest(b"X = " + b"+".join([b"1"] * 2999))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import a.b", {"a", "a.b"}),
        ("from . import c", {"shop.c"}),
        ("from .c import d", {"shop.c", "shop.c.d"}),
        ("def f():\n    from a import b", {"a", "a.b"}),
        ("if TYPE_CHECKING:\n    import a\nelse:\n    import b", {"b"}),
        ("from .. import up", {"..", "...up"}),
        ("import agentfly_core.rl, flows", set()),
        ("importlib.import_module('a')", set()),
    ],
)
def test_what_a_module_imports_is_read_from_its_text(text, found):
    names = module("shop.prices", text).imports - {"shop", "shop.prices"}
    assert {name for name in names if name.strip(".")} == {n for n in found if n.strip(".")}


def test_of_agentfly_the_named_module_is_there_and_nothing_that_it_imports():
    found = code_of(["agentfly_core.tools.calculator"], [])
    assert [*found.modules] == ["agentfly_core.tools.calculator"]
    assert found.versions == {}


def test_modules_are_found_without_being_run(here):
    (here / "found_shop").mkdir()
    (here / "found_shop/__init__.py").write_text("raise RuntimeError('it was run')\n")
    (here / "found_shop/tools.py").write_text("import json, pydantic\nfrom . import prices\n")
    (here / "found_shop/prices.py").write_text("PRICES = {}\n")
    found = code_of(["found_shop.tools"], [])
    assert [*found.modules] == ["found_shop", "found_shop.prices", "found_shop.tools"]
    assert [*found.versions] == ["pydantic"]
    assert "found_shop" not in sys.modules


def test_a_module_that_was_imported_stays_what_it_is_until_it_is_imported_anew(here):
    (here / "kept_tools.py").write_text("X = 1\n")
    __import__("kept_tools")
    first = code_of(["kept_tools"], []).digest("kept_tools")
    (here / "kept_tools.py").write_text("X = 2\n")
    assert code_of(["kept_tools"], []).digest("kept_tools") == first
    del sys.modules["kept_tools"]
    assert code_of(["kept_tools"], []).digest("kept_tools") != first


def test_a_folder_gives_back_the_code_that_was_written(tmp_path):
    code = shop(files={"prices.csv": "9f2c"})
    stored.write(code, tmp_path)
    assert (tmp_path / "my_tools.py").read_bytes() == TOOLS
    assert stored.read(tmp_path) == code


def test_a_data_file_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match=r"code_files: there is no file 'nowhere.csv'"):
        code_of([], ["nowhere.csv"])


def test_what_differs_is_told_function_by_function():
    shop = "class Shop:\n    size = 2\n    def reset(self): "
    old = f"import a\nX = 1\n{shop}...\ndef gone(): ...\n"
    new = f"import b\nX = 2\n{shop}1\ndef came(): ...\n"
    one, other = ({"m": module("m", text)} for text in (old, new))
    assert differences(Code({"m"}, one, {}, {}), Code({"m"}, other, {}, {}), False) == [
        "m.py: gone (gone), module level, X, Shop.reset, came (new)"
    ]


def test_what_differs_of_imports_packages_and_files_is_told():
    old = shop(files={"prices.csv": "9f2c"})
    new = shop("PRICES = {1: 3}\n", "2.4.2", {"prices.csv": "77b0"})
    lines = ["my_prices.py: PRICES", "numpy: 2.4.1 -> 2.4.2", "prices.csv"]
    assert differences(old, new, False) == lines
    swapped = [shop(text) for text in ("A = 1\nB = 2\n", "B = 2\nA = 1\n")]
    assert differences(*swapped, False) == ["my_prices.py: the order of its statements"]
    assert differences(old, old, False) == []


def test_a_method_and_the_rest_of_its_class_are_told_apart():
    assert [*definitions(b"class Shop(Base):\n    size = 2\n    def reset(self): ...\n")] == [
        "Shop.reset",
        "Shop",
    ]
