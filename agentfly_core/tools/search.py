"""Search in a corpus by BM25."""

import functools
import hashlib
import re
from collections.abc import Collection, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field, TypeAdapter, ValidationError

from agentfly_core.authoring.tool import tool
from agentfly_core.records.trajectory import Problem
from agentfly_core.system.module_search import require_package

Row = dict[str, str]
_WORD = re.compile(r"\w+")
_ROW = TypeAdapter(Row)
NOTHING = "Nothing was found."


class Index:
    """Ranks the rows (pages) of a corpus by BM25. Words in titles count twice.

    It uses Lucene's variant of BM25 with k1 = 1.5 and b = 0.75.
    """

    def __init__(self, pages: Sequence[Row]) -> None:
        import bm25s  # an optional dependency that takes half a second to import

        # `ranked` keeps this order among equal scores
        self._pages = sorted(pages, key=itemgetter("id"))
        self._bm25 = bm25s.BM25()
        texts = ("{title} {title} {text}".format(**page) for page in self._pages)
        self._bm25.index([*map(_words, texts)], show_progress=False)

    def ranked(self, query: str, exclude: Collection[str] = ()) -> list[Row]:
        """Return the rows that contain a word of the query, in descending order of their scores.

        Rows with equal scores are sorted by id. Rows with an id in `exclude` are left out.
        """
        wanted = _words(query)
        if not wanted:
            return []
        scores: np.ndarray = self._bm25.get_scores(wanted)
        best = [self._pages[i] for i in np.argsort(-scores, kind="stable") if scores[i] > 0]
        return [page for page in best if page["id"] not in exclude]


@tool
class Search:
    """A tool that searches in the JSON-lines file `corpus`. Each row has `id`, `title` and `text`.

    A call shows `results` rows. `sha256` is the expected checksum of the file, or at least the
    first 16 digits of it. `hides` is the name of a fact: the row with the id in this fact of the
    problem is never shown. All tools of a process that search in the same file share one index.
    Raises ValueError for an unreadable corpus and a wrong checksum.
    """

    def __init__(
        self,
        corpus: str,
        sha256: Annotated[str, Field(pattern="^[0-9a-f]{16,64}$")],
        results: Annotated[int, Field(ge=1)] = 3,
        hides: str = "",
    ) -> None:
        require_package("bm25s", "search")
        checksum = hashlib.sha256(_content(corpus)).hexdigest()
        if not checksum.startswith(sha256):
            raise ValueError(
                f"The corpus {corpus} has the sha256 {checksum}, expected {sha256}. Fetch the "
                "expected version of the file, or change `sha256`."
            )
        self.results, self.index = results, index(str(Path(corpus).resolve()), checksum)
        self.hides = hides

    def __call__(
        self,
        query: str,
        page: Annotated[int, Field(ge=1)] = 1,
        exclude: tuple[str, ...] = (),
        *,
        problem: Problem,
    ) -> str:
        """Search the encyclopaedia; each result is shown as [id] title: text.

        Args:
            query: a few words, such as a name
            page: 2 for the results that follow the first ones, and so on
            exclude: ids of results that are not to be shown again
        """
        hidden = str(problem.facts.get(self.hides, ""))
        ranked = self.index.ranked(query, (*exclude, hidden))
        first = (page - 1) * self.results
        shown = ranked[first : first + self.results]
        if not shown:
            return NOTHING
        lines = ["[{id}] {title}: {text}".format(**page) for page in shown]
        more = len(ranked) - first - len(shown)
        return "\n".join([*lines, f"[... {more} more ...]"] if more else lines)


@functools.cache
def index(corpus: str, version: str) -> Index:
    """Build the index of a corpus.

    Indices are cached by path and `version`, a checksum of the file.
    """
    return Index(rows(corpus))


def rows(corpus: str) -> list[Row]:
    """Read the rows of a corpus, a JSON-lines file. Each row has an `id`, a `title` and a `text`.

    Raises ValueError for an unreadable or empty file, for a row without these fields, and for
    repeated ids.
    """
    try:
        text = _content(corpus).decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"The corpus {corpus} is not UTF-8: {error}") from None
    by_id: dict[str, Row] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = _ROW.validate_json(line)
        except ValidationError as error:
            raise ValueError(
                f"{corpus}, row {number} is not an object of strings: {error}"
            ) from None
        if missing := [key for key in ("id", "title", "text") if key not in row]:
            raise ValueError(f"{corpus}, row {number} has no {missing[0]}.")
        if row["id"] in by_id:
            raise ValueError(f"{corpus}, row {number}: an earlier row has the id {row['id']!r}.")
        by_id[row["id"]] = row
    if not by_id:
        raise ValueError(f"{corpus} is empty, expected one page on each line, as a JSON object.")
    return list(by_id.values())


def _content(corpus: str) -> bytes:
    try:
        return Path(corpus).read_bytes()
    except OSError as error:
        raise ValueError(f"The corpus {corpus} cannot be read: {error}") from None


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())
