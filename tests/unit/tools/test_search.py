"""Search in a corpus of one's own."""

import hashlib
import json
import sys
from pathlib import Path

import pytest

from agentfly_core.authoring.tool import Tool
from agentfly_core.records.trajectory import Observation, Problem, ToolCall
from agentfly_core.tools.search import NOTHING, Index, Search, rows

PAGES = [
    {"id": "7", "title": "Amber Mills", "text": "A company, founded by Anna Berg."},
    {"id": "2", "title": "Anna Berg", "text": "A baker, born in Peru in 1931."},
    {"id": "5", "title": "Anna Lind", "text": "A sailor, born in Oman in 1950."},
    {"id": "3", "title": "Anna Dahl", "text": "A sailor, born in Oman in 1951."},
    {"id": "4", "title": "Anna Holm", "text": "A sailor, born in Oman in 1952."},
]
PROBLEM = Problem("p", "Who founded Amber Mills?", {"source": "7"})


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "pages.jsonl"
    path.write_text("".join(f"{json.dumps(page)}\n" for page in PAGES))
    return path


@pytest.fixture
def search(corpus: Path) -> Tool:
    return Search.with_settings(corpus=str(corpus), sha256=version(corpus), results=2)


def version(corpus: Path) -> str:
    return hashlib.sha256(corpus.read_bytes()).hexdigest()[:16]


async def result(search: Tool, **arguments: str | int | list[str]) -> Observation:
    return await search.answer(ToolCall("search", arguments), {Problem: PROBLEM})


def ids(query: str, *exclude: str) -> list[str]:
    return [page["id"] for page in Index(PAGES).ranked(query, exclude)]


def test_a_matching_title_is_ranked_first() -> None:
    assert ids("anna BERG!")[:2] == ["2", "7"]


def test_equal_scores_are_ordered_by_id() -> None:
    assert ids("sailor") == ["3", "4", "5"]
    assert [page["id"] for page in Index(PAGES[::-1]).ranked("sailor")] == ["3", "4", "5"]


@pytest.mark.parametrize("query", ["", "?!", "zebra", "\ud800"])
def test_a_query_of_unknown_words_has_no_result(query: str) -> None:
    assert ids(query) == []


async def test_results_have_pages_and_a_count_of_the_rest(search: Tool) -> None:
    first = await result(search, query="sailor")
    assert first == Observation(
        "search",
        "[3] Anna Dahl: A sailor, born in Oman in 1951.\n"
        "[4] Anna Holm: A sailor, born in Oman in 1952.\n[... 1 more ...]",
    )
    second = await result(search, query="sailor", page=2)
    assert second.content == "[5] Anna Lind: A sailor, born in Oman in 1950."
    assert (await result(search, query="sailor", page=3)).content == NOTHING


async def test_excluded_pages_are_skipped(search: Tool) -> None:
    page_ids = await result(search, query="sailor", exclude=["3", "4"])
    assert page_ids.content == "[5] Anna Lind: A sailor, born in Oman in 1950."


async def test_the_page_of_the_problem_is_hidden(corpus: Path) -> None:
    plain, hiding = (
        Search.with_settings(corpus=str(corpus), sha256=version(corpus), hides=hides)
        for hides in ("", "source")
    )
    assert "[7] Amber Mills" in (await result(plain, query="Anna Berg")).content
    assert "[7] Amber Mills" not in (await result(hiding, query="Anna Berg", page=1)).content
    assert (await result(hiding, query="Amber Mills")).content == NOTHING


@pytest.mark.parametrize("page", [0, -1, "two"])
async def test_an_invalid_page_is_reported_to_the_model(search: Tool, page: int | str) -> None:
    assert (await result(search, query="sailor", page=page)).error


def test_a_process_loads_a_corpus_once(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(corpus.parent)
    one = Search.with_settings(corpus=str(corpus), sha256=version(corpus)).function
    other = Search.with_settings(corpus="pages.jsonl", sha256=version(corpus), results=1).function
    assert one.index is other.index
    corpus.write_text('{"id": "1", "title": "Ink", "text": "It is blue."}\n')
    changed = Search.with_settings(corpus=str(corpus), sha256=version(corpus)).function
    assert [page["id"] for page in changed.index.ranked("blue")] == ["1"]


def test_another_version_of_the_corpus_is_refused(corpus: Path) -> None:
    digest = hashlib.sha256(corpus.read_bytes()).hexdigest()
    Search.with_settings(corpus=str(corpus), sha256=digest)
    with pytest.raises(ValueError, match=f"has the sha256 {digest}, expected 0123456789abcdef"):
        Search.with_settings(corpus=str(corpus), sha256="0123456789abcdef")


def test_the_experiment_pins_the_corpus_version(corpus: Path) -> None:
    with pytest.raises(ValueError, match="sha256"):
        Search.with_settings(corpus=str(corpus))
    with pytest.raises(ValueError, match="sha256"):
        Search.with_settings(corpus=str(corpus), sha256=version(corpus)[:15])


def test_only_line_feeds_end_a_line(corpus: Path) -> None:
    corpus.write_text('{"id": "1", "title": "Ink", "text": "Blue\u2028 or black."}\n\n')
    assert rows(str(corpus)) == [{"id": "1", "title": "Ink", "text": "Blue\u2028 or black."}]


def test_a_binary_corpus_is_refused(corpus: Path) -> None:
    corpus.write_bytes(b"\xff")
    with pytest.raises(ValueError, match=r"pages.jsonl is not UTF-8"):
        Search.with_settings(corpus=str(corpus), sha256=version(corpus))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"id": "1", "title": "Ink"}', "row 1 has no text"),
        ('{"id": "1", "title": "Ink", "text": "Blue."}\n' * 2, "row 2: an earlier row has the id"),
        ("ink", "row 1 is not an object of strings"),
        ("", "is empty, expected one page on each line"),
    ],
)
def test_a_file_of_another_format_is_refused(corpus: Path, text: str, message: str) -> None:
    corpus.write_text(text)
    with pytest.raises(ValueError, match=message):
        Search.with_settings(corpus=str(corpus), sha256=version(corpus))


def test_a_missing_corpus_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"none.jsonl .*No such file"):
        Search.with_settings(corpus=str(tmp_path / "none.jsonl"), sha256="0" * 16)


def test_the_schema_has_query_page_and_exclusions_only(search: Tool) -> None:
    properties = search.schema.parameters["properties"]
    assert isinstance(properties, dict) and [*properties] == ["query", "page", "exclude"]
    assert not search.untold()


def test_a_missing_package_has_its_install_command(
    corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "bm25s", None)
    with pytest.raises(ValueError, match=r"package bm25s is missing.*pip install"):
        Search.with_settings(corpus=str(corpus), sha256=version(corpus))
