"""The documentation site: built without a network, complete, and without anything from outside."""

import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

import pytest

from tests.support.project import ROOT

pytestmark = pytest.mark.slow
OFFLINE = ["unshare", "--user", "--map-root-user", "--net"]
LOADING = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}


class Page(NamedTuple):
    """The addresses that a built page loads and links to, and the ids in it."""

    loads: list[str]
    links: list[str]
    ids: set[str]


class Reader(HTMLParser):
    """Collects the addresses and ids of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.page = Page([], [], set())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.page.ids.update(values[name] for name in ("id", "name") if name in values)
        if tag == "a" and "href" in values:
            self.page.links.append(values["href"])
        if LOADING.get(tag) in values:
            self.page.loads.append(values[LOADING[tag]])


def read(path: Path) -> Page:
    reader = Reader()
    reader.feed(path.read_text())
    return reader.page


def offline() -> list[str]:
    """The start of a command without a network, where this user may have one."""
    available = subprocess.run([*OFFLINE, "true"], capture_output=True, check=False)
    return OFFLINE if available.returncode == 0 else []


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built site."""
    pytest.importorskip("zensical")
    folder = tmp_path_factory.mktemp("site")
    shutil.copy(ROOT / "mkdocs.yml", folder)
    shutil.copytree(ROOT / "docs", folder / "docs")
    build = [*offline(), sys.executable, "-m", "zensical", "build", "--strict"]
    done = subprocess.run(build, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "build/site"


def test_every_page_is_in_the_navigation(site: Path) -> None:
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    listed = re.findall(r"^ +- (?:[^:\n]+: )?(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M)
    assert sorted(listed) == sorted(pages)
    assert all((site / page).with_suffix(".html").is_file() for page in listed)


def test_pages_load_nothing_from_outside(site: Path) -> None:
    for path in site.rglob("*.html"):
        assert [address for address in read(path).loads if "//" in address] == [], path
    for path in site.rglob("*.css"):
        loaded = re.findall(r"(?:url\(|@import )[\"']?([^\"')]+)", path.read_text())
        assert [address for address in loaded if re.match(r"(https?:)?//", address)] == [], path


def test_links_of_built_pages_lead_to_pages_and_headings(site: Path) -> None:
    pages = {path: read(path) for path in site.rglob("*.html") if path.name != "404.html"}
    for path, page in pages.items():
        for address in (link for link in page.links if not re.match(r"\w+:|//", link)):
            name, _, anchor = address.partition("#")
            target = (path.parent / name).resolve() if name else path
            assert target.exists(), f"{path.name}: {address}"
            if anchor and target in pages:
                assert unquote(anchor) in pages[target].ids, f"{path.name}: {address}"


def test_sources_of_pages_are_not_part_of_the_site(site: Path) -> None:
    assert [path for end in ("py", "template") for path in site.rglob(f"*.{end}")] == []
