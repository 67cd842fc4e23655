"""300 random edits of a small project, by seed: its digest changes exactly when behaviour can."""

import ast
import random
import re
from pathlib import PurePosixPath

import pytest

from agentfly_core.experiment.user_code.modules import Code, Module

PROJECT = {
    "shop_tools.py": '''"""Tools of a shop."""
from agentfly_core import tool
from shop.prices import price

LIMIT = 8

@tool
async def lookup(key: str) -> str:
    """Find a product by key."""
    return f"{key}: {price(key)} of {LIMIT}"
''',
    "shop/__init__.py": '"""A shop."""\n',
    "shop/prices.py": '''"""What things cost."""
from . import rounding

PRICES = {"tea": 3, "cup": 7}

def price(key):
    """The price of a product."""
    return rounding.whole(PRICES[key] * 11)
''',
    "shop/rounding.py": '''"""Rounding, two imports away."""

STEP = 5

def whole(number):
    """The next multiple of STEP."""
    return -(-number // STEP) * STEP
''',
    "shop/notes.py": '''"""Imported by nobody."""

PAGES = 12

def page(number):
    """A page."""
    return number % PAGES
''',
}
UNSEEN = "PAGES = "
"""What only the module says that nobody imports."""


def digest(files):
    paths = [PurePosixPath(file) for file in files]
    names = [".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in paths]
    modules = {
        name: Module(name, ".py", path.stem == "__init__", files[str(path)].encode())
        for name, path in zip(names, paths, strict=True)
    }
    return Code({"shop_tools"}, modules, {}, {}).digest("shop_tools")


def comment(text, some):
    """A comment behind a line that is in no string."""
    lines = text.splitlines()
    at = some.choice([n for n, line in enumerate(lines) if line.count('"""') != 1])
    lines[at] += f"  # note {some.randrange(100)}"
    return "\n".join(lines) + "\n"


def blank_lines(text, some):
    lines = text.splitlines()
    at = some.randrange(len(lines) + 1)
    return "\n".join([*lines[:at], *[""] * some.randint(1, 3), *lines[at:]]) + "\n"


def formatting(text, some):
    """As Python itself writes it, without comments."""
    return ast.unparse(ast.parse(text)) + "\n"


def docstring(text, some):
    return text.replace('."""', f' {some.randrange(10**9)}."""', 1)


def constant(text, some):
    """Another number; where there is none, a first one."""
    found = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)]
    numbers = [node for node in found if isinstance(node.value, int)]
    if not numbers:
        return text + "FIRST = 1\n"
    number, lines = some.choice(numbers), text.splitlines()
    line = lines[number.lineno - 1]
    before, after = line[: number.col_offset], line[number.end_col_offset :]
    lines[number.lineno - 1] = f"{before}{number.value + 1}{after}"
    return "\n".join(lines) + "\n"


def renamed(files, file, some):
    """A function of a file gets another name, wherever it is used."""
    defined = [node.name for node in ast.parse(files[file]).body if hasattr(node, "name")]
    old = some.choice(defined)
    return {name: re.sub(rf"\b{old}\b", f"{old}x", text) for name, text in files.items()}


def moved(files, file, some):
    """A file gets another name, also where it is imported."""
    old = PurePosixPath(file)
    if old.stem == "shop_tools":  # which the experiment names
        return renamed(files, file, some)
    inside = {name: re.sub(rf"\b{old.stem}\b", f"{old.stem}x", t) for name, t in files.items()}
    inside[str(old.with_stem(f"{old.stem}x"))] = inside.pop(file)
    return inside


IN_FILE = {comment: False, blank_lines: False, formatting: False, docstring: True, constant: True}
"""Whether an edit of what is imported can change behaviour."""
OF_PROJECT = (renamed, moved)


@pytest.mark.parametrize("seed", range(3))
def test_of_300_random_edits_those_change_the_digest_that_can_change_behaviour(seed):
    some, files, changes = random.Random(seed), dict(PROJECT), 0
    for _ in range(100):
        edit, file = some.choice([*IN_FILE, *OF_PROJECT]), some.choice([*files])
        if edit in OF_PROJECT:
            file = some.choice([name for name, text in files.items() if "def " in text])
            edited = edit(files, file, some)
        else:
            edited = {**files, file: edit(files[file], some)}
        can_change = IN_FILE.get(edit, True) and UNSEEN not in files[file]
        assert (digest(edited) != digest(files)) == can_change, (edit.__name__, file)
        files, changes = edited, changes + can_change
    assert 30 < changes < 70


def test_a_file_that_nobody_imports_may_come_and_go():
    assert digest({**PROJECT, "shop/new.py": "X = 1\n"}) == digest(PROJECT)
    assert digest({f: t for f, t in PROJECT.items() if UNSEEN not in t}) == digest(PROJECT)
