"""Names in the pages exist: linked files and headings, modules, files and import paths."""

import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = next(
    folder for folder in Path(__file__).resolve().parents if (folder / "pyproject.toml").exists()
)
PLACES = ("*.md", "docs/**/*.md", "data/*.md", "agentfly_core/recipes/*/README.md")
PAGES = sorted(path for place in PLACES for path in ROOT.glob(place))
PRESENT = [page for page in PAGES if page.name != "CHANGELOG.md"]  # it may name removed things
FILES = [
    f"/{path.relative_to(ROOT)}".removesuffix(".txt")  # a suffix of `agentfly init`
    for top in ("agentfly_core", "flows", "tasks", "tests", "benchmarks", "data")
    for path in (ROOT / top).rglob("*")
    if path.is_file()
]
READY_MADE = "agents|algorithms|datasets|environments|recipes|rewards|templates|tools"


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def dangling(page: Path, text: str) -> list[str]:
    """The relative links of a page that lead nowhere."""
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"```.*?```", "", text, flags=re.DOTALL)):
        path, _, anchor = target.partition("#")
        if re.match(r"\w+:", target):
            continue
        linked = (page.parent / path).resolve() if path else page
        if not linked.exists() or (anchor and anchor not in anchors(linked)):
            broken.append(target)
    return broken


def unknown(text: str) -> list[str]:
    """The modules, import paths and files that a page names and the repository does not have."""
    names = set(re.findall(r"\bagentfly_core(?:\.\w+)+(?::\w+)?", text))
    names |= {
        f"agentfly_core.{name}" for name in re.findall(rf"`((?:{READY_MADE})(?:\.\w+)+:\w+)", text)
    }
    names |= set(re.findall(r"python -m ((?:benchmarks|flows)(?:\.\w+)*)", text))
    missing = [name for name in sorted(names) if not resolves(name)]
    for name in sorted(set(re.findall(r"`([\w./-]+\.py)\b", text))):
        if not name.startswith("my_") and not any(file.endswith(f"/{name}") for file in FILES):
            missing.append(name)
    return missing


def resolves(name: str) -> bool:
    """Whether there is a `package.module`, `package.module:attribute` or `package.attribute`."""
    module, _, attribute = name.partition(":")
    if not attribute and not is_module(module):
        module, _, attribute = module.rpartition(".")
    return is_module(module) and (not attribute or hasattr(import_module(module), attribute))


def is_module(name: str) -> bool:
    path = name.replace(".", "/")
    return f"/{path}.py" in FILES or f"/{path}/__init__.py" in FILES


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_pages_lead_to_files_and_headings(page):
    assert dangling(page, page.read_text()) == []


@pytest.mark.parametrize("page", PRESENT, ids=lambda page: str(page.relative_to(ROOT)))
def test_modules_files_and_import_paths_of_pages_exist(page):
    assert unknown(page.read_text()) == []


@pytest.mark.parametrize(
    "text",
    [
        "`agentfly_core.record`",
        "`agentfly_core.tools.python:pyton`",
        "`tools.calculater:calculator`",
        "`slots.py`",
        "python -m benchmarks.update_vs_trl",
        "`agentfly_core.teller`",
    ],
)
def test_a_name_that_does_not_exist_is_found(text):
    assert unknown(text) != []


@pytest.mark.parametrize(
    "link",
    [
        "docs/nothing.md",
        "docs/how-to/tools-and-rewards.md#a-heading-that-is-not-there",
        "#nor-this-one",
    ],
)
def test_a_link_that_leads_nowhere_is_found(link):
    assert dangling(ROOT / "README.md", f"[it]({link})") == [link]
