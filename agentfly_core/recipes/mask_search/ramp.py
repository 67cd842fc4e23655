"""The DVC stage that makes problems from a corpus.

The stage masks names and numbers of a page that also occur on other pages. For the generated
encyclopaedia, the stage also makes questions:
`python -m agentfly_core.recipes.mask_search.ramp FOLDER`.
"""

import argparse
import json
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from agentfly_core.datasets.splitting import split_of
from agentfly_core.recipes.mask_search.corpus import encyclopaedia, families, read
from agentfly_core.tools.search import Row

MASK = "[mask]"
SPLITS = ("train", "val", "test")
_SHARES = ("train",) * 8 + ("val", "test")
_ENTITY = re.compile(r"[^\W\d_a-z]\w*(?: [^\W\d_a-z]\w*)*|\d+(?:[.,]\d+)*")
_SENTENCE_START = re.compile(r"(?:^|[.!?] )$")
Problems = dict[str, list[dict[str, Any]]]
"""Problems as JSON objects, by split."""


def ramp(pages: Sequence[Row], seed: int, masks: int, least: int = 1) -> Problems:
    """Make problems of retrieval-augmented mask prediction (RAMP).

    The model must fill the masks in the text of a page by searching the other pages. Each page
    gives one problem with one mask, one problem with two masks, and so on:

        {"id": "017-2", "prompt": "Fill in: Its founder has badge [mask] and is person [mask]. This
         is about firm 3072.", "answers": ["5738", "4821"], "masks": 2,
         "source": "017", "kind": "ramp"}

    The masked words are drawn from the entities of the page (see the function `entities`). `masks`
    is the maximum number of masks in a problem. Pages with fewer than `least` entities give no
    problems.
    """
    made: Problems = {split: [] for split in SPLITS}
    for page in pages:
        draw = random.Random(f"{seed} {page['id']}")
        candidates = entities(page, pages) if len(_names(page)) >= least else []
        for count in range(1, min(masks, len(candidates)) + 1 if len(candidates) >= least else 1):
            places = sorted(draw.sample(range(len(candidates)), count))
            chosen = [candidates[place] for place in places]
            split = page.get("split") or split_of("ramp", page["id"], _SHARES)
            made[split].append(_problem(page, chosen))
    return made


def entities(page: Row, pages: Iterable[Row]) -> list[str]:
    """Return the names and numbers in the text of `page` that searches in `pages` can find.

    A returned entity occurs once in the text of `page`, and also in another page. One or two
    searches must be enough to find that other page. For example, the given page "firm 3072" has the
    text "Its founder has badge 5738 and is person 4821.":

    - One search finds 4821 if another page mentions both the title "firm 3072" and 4821.
    - Two searches find 5738 if the page with the title "person 4821" mentions 5738.
    """
    names, others = _names(page), [one for one in pages if one["id"] != page["id"]]
    linked = _mentioning(page["title"], others)
    near = [name for name in names if _mentioning(name, linked)]
    further = [page for name in near for page in others if _whole(name).search(page["title"])]
    return [name for name in names if name in near or _mentioning(name, further)]


def _names(page: Row) -> list[str]:
    title, text = page["title"], page["text"]
    return [
        match[0]
        for match in _ENTITY.finditer(text)
        if not _SENTENCE_START.search(text[: match.start()])
        and len(_whole(match[0]).findall(text)) == 1
        and not _whole(match[0]).search(title)
    ]


def _mentioning(name: str, pages: Iterable[Row]) -> list[Row]:
    whole = _whole(name)
    texts = ((page, f"{page['title']}: {page['text']}") for page in pages)
    # a regular expression is slower than `in`
    return [page for page, text in texts if name in text and whole.search(text)]


@cache
def _whole(name: str) -> re.Pattern[str]:
    return re.compile(rf"\b{re.escape(name)}\b")


def _problem(page: Row, answers: Sequence[str]) -> dict[str, Any]:
    text = page["text"]
    for answer in answers:
        text = _whole(answer).sub(MASK, text)
    return {
        "id": f"{page['id']}-{len(answers)}",
        "prompt": f"Fill in: {text} This is about {page['title']}.",
        "answers": [*answers],
        "masks": len(answers),
        "source": page["id"],
        "kind": "ramp",
    }


def questions(pages: Sequence[Row], seed: int, persons: int) -> Problems:
    """Make questions about the pages of `encyclopaedia(seed)`, in the format of `ramp`.

    Each question has one answer. The field `source` is the id of the page about the firm in the
    question. Each question is about a different person. `persons` is the maximum number of
    questions in the training split. The other splits have a question for each of their persons.
    """
    made: Problems = {split: [] for split in SPLITS}
    sources = {page["title"]: page["id"] for page in pages}
    for family in families(seed):
        if family.split == "train" and len(made["train"]) >= persons:
            continue
        source = sources[f"firm {family.firm}"]
        facts = {"answers": [str(family.badge)], "masks": 1, "source": source, "kind": "qa"}
        made[family.split].append({"id": f"qa-{source}", "prompt": family.question(), **facts})
    return made


def write(folder: Path, pages: Sequence[Row], problems: Mapping[str, Problems]) -> None:
    """Write the files `pages.jsonl`, `ramp_train.jsonl` and so on.

    The same pages and problems always give files with the same bytes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files: Iterator[tuple[str, Sequence[Mapping[str, Any]]]] = (
        (f"{kind}_{split}", rows) for kind, made in problems.items() for split, rows in made.items()
    )
    for name, rows in (("pages", pages), *files):
        lines = (json.dumps(row, ensure_ascii=False) for row in rows)
        (folder / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines))


def main() -> None:
    """Read or generate a corpus, make its problems, and write the pages and problems to files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="the folder to write")
    parser.add_argument(
        "--corpus", default="", help="a JSON-lines file or a folder; empty: generate it"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--masks", type=int, default=4, help="the most masks in a page")
    parser.add_argument(
        "--entities", type=int, default=4, help="the fewest entities in a page with masks"
    )
    parser.add_argument(
        "--persons", type=int, default=24, help="the largest number of training questions"
    )
    given = parser.parse_args()
    pages = read(given.corpus) if given.corpus else encyclopaedia(given.seed)
    problems = {"ramp": ramp(pages, given.seed, given.masks, given.entities)}
    if not given.corpus:
        problems["qa"] = questions(pages, given.seed, given.persons)
    write(given.folder, pages, problems)


if __name__ == "__main__":
    main()
