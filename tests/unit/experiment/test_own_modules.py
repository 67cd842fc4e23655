"""The files that an author's module depends on, listed without running them."""

import importlib
import random
import sys

import pytest

from agentfly_core.experiment import own_modules

PROJECT = {
    "found_tools.py": '"""Tools of a shop."""\nimport json, found_units as units\n\n'
    "from found_shop.prices import PRICES\n",
    "found_units.py": "import pydantic\n",
    "found_shop/__init__.py": "raise RuntimeError('it was run')\n",
    "found_shop/prices.py": "from . import rounding\n\nPRICES = {}\n",
    "found_shop/rounding.py": "def whole(number):\n    import found_deep.steps\n",
    "found_shop/fast.so": "\x7fELF",
    "found_shop/notes.txt": "tea",
    "found_deep/steps.py": "STEP = 5\n",
    "found_notes.py": "import found_tools\n",
}
FOUND = {*PROJECT} - {"found_notes.py", "found_shop/notes.txt"}


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, text in PROJECT.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    importlib.invalidate_caches()
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("found_")]:
        del sys.modules[name]


def sources(module):
    """The files of a module, as another process reads them."""
    own_modules._package.cache_clear()
    return own_modules.sources(module)


def test_a_module_depends_on_its_package_and_own_imports(project):
    assert {*sources("found_tools")} == FOUND
    assert {*sources("found_shop.prices")} == FOUND - {"found_tools.py", "found_units.py"}
    assert not [name for name in sys.modules if name.startswith("found_")]


@pytest.mark.parametrize("seed", range(2))
def test_random_edits_change_digests_of_dependent_modules(project, seed):
    some = random.Random(seed)
    for number in range(50):
        before, name = sources("found_tools"), some.choice([*PROJECT])
        (project / name).write_text(f"{(project / name).read_text()}\nMORE = {number}\n")
        after = sources("found_tools")
        differs = {file for file in after if before[file] != after[file]}
        assert differs == {name} & FOUND, name


def test_added_and_removed_files_of_a_package_count(project):
    before = sources("found_tools")
    (project / "found_shop/new.py").write_text("X = 1\n")
    assert {*sources("found_tools")} - {*before} == {"found_shop/new.py"}


def test_built_in_and_standard_modules_have_no_own_files():
    assert sources("agentfly_core.tools.calculator") == sources("json.decoder") == {}


def test_an_installed_package_counts_if_it_is_named():
    files = sources("pydantic")
    assert "pydantic/main.py" in files
    assert not [name for name in files if name.startswith("pydantic_core/")]


def test_a_process_reads_a_module_once(project):
    before = sources("found_deep.steps")
    (project / "found_deep/steps.py").write_text("STEP = 6\n")
    assert own_modules.sources("found_deep.steps") == before
    assert sources("found_deep.steps") != before


def test_a_module_without_a_file_is_refused(monkeypatch):
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    with pytest.raises(ValueError, match=r"__main__ .* source file"):
        sources("__main__")


def test_a_module_has_the_parts_of_all_its_files(project):
    own_modules._package.cache_clear()
    parts = own_modules.parts_of(["found_tools"], {})
    assert {"found_tools", "found_shop.rounding.whole", "found_shop.fast", "found_units"} < {*parts}


def test_a_large_or_installed_package_is_one_part(project, monkeypatch):
    own_modules._package.cache_clear()
    monkeypatch.setattr(own_modules, "LARGEST", 40)
    parts = own_modules.parts_of(["found_shop.prices", "httpx"], {})
    assert {*parts} == {"found_shop", "found_deep.steps", "httpx"}
