"""tests/guarded_cases.yaml names the tests of each case that must stay guarded."""

import ast
import re
import tomllib
from functools import cache
from pathlib import Path

import yaml

from agentfly_core.sandbox.attacks import ATTACKS
from tests.support.project import ROOT

CASES: dict[str, dict[str, list[str]]] = yaml.safe_load(
    (ROOT / "tests/guarded_cases.yaml").read_text()
)
FORM = re.compile(r"(?P<file>tests/\S+\.py)::(?P<name>test_\w+)(?:\[(?P<value>.+)\])?")


def test_every_guarded_case_has_tests_that_exist():
    cases = {case: tests for group in CASES.values() for case, tests in group.items()}
    assert [case for case, tests in cases.items() if not tests] == []
    assert [test for tests in cases.values() for test in tests if not exists(test)] == []


def test_every_attack_fuzz_test_and_kill_is_guarded():
    assert [*CASES["attacks on the sandbox"]] == [attack.name for attack in ATTACKS]
    guarded = {
        test.partition("[")[0]
        for group in CASES.values()
        for tests in group.values()
        for test in tests
    }
    files = [
        *ROOT.glob("tests/integration/fuzz/test_*.py"),
        *ROOT.glob("tests/integration/faults/test_kill*.py"),
    ]
    written = {
        f"{path.relative_to(ROOT)}::{name}"
        for path in files
        for name in content(path)[0]
        if name.startswith("test_")
    }
    assert written
    assert written - guarded == set()


def test_a_missing_test_or_value_is_noticed():
    here = "tests/unit/test_guarded_cases.py::test_every_guarded_case_has_tests_that_exist"
    assert exists(here)
    assert not exists("tests/unit/test_guarded_cases.py::test_of_" + "nothing")
    assert not exists(f"{here}[a value that no file " + "contains]")
    assert exists(f"{here}[utf-8]")


def exists(test: str) -> bool:
    """Whether the file has the function, and it or a module that it imports the value."""
    parts = FORM.fullmatch(test)
    if parts is None or not (ROOT / parts["file"]).is_file():
        return False
    functions, texts, imported = content(ROOT / parts["file"])
    values = texts.union(*(content(path)[1] for path in imported))
    return parts["name"] in functions and (parts["value"] is None or parts["value"] in values)


@cache
def content(path: Path) -> tuple[set[str], set[str], set[Path]]:
    """The functions, the texts and the imported modules of this repository in a source file.

    Names of attacks in a TOML file beside it are texts, too.
    """
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    functions = {
        node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    texts = {node.value for node in nodes if isinstance(node, ast.Constant)}
    if (data := path.with_suffix(".toml")).is_file():
        texts |= {attack["name"] for attack in tomllib.loads(data.read_text())["attack"]}
    modules = {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
    files = {ROOT / f"{module.replace('.', '/')}.py" for module in modules}
    return functions, texts, {file for file in files if file.is_file()}
