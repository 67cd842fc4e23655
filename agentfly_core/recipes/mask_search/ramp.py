"""The DVC stage that makes problems of a corpus.

Paragraphs with masks, whose fills another page states, and questions on the encyclopaedia:
`python -m agentfly_core.recipes.mask_search.ramp FOLDER`.
"""

import argparse
import json
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
"""Rows of problems by split."""


def ramp(pages: Sequence[Row], seed: int, masks: int) -> Problems:
    """Problems of retrieval-augmented mask prediction, one for each page and number of masks:

        {"id": "017-2", "prompt": "Fill in: Amber Mills: Founded by [mask], born in Peru, living in
         [mask].", "answers": ["Anna Berg", "Cork"], "masks": 2, "source": "017", "kind": "ramp"}

    Masks are drawn without replacement from `entities`, at most `masks` of them.
    """
    made: Problems = {split: [] for split in SPLITS}
    for page in pages:
        draw = random.Random(f"{seed} {page['id']}")
        candidates = entities(page, pages)
        for count in range(1, min(masks, len(candidates)) + 1):
            places = sorted(draw.sample(range(len(candidates)), count))
            chosen = [candidates[place] for place in places]
            split = page.get("split") or split_of("ramp", page["id"], _SHARES)
            made[split].append(_problem(page, chosen))
    return made


def entities(page: Row, pages: Iterable[Row]) -> list[str]:
    """Names and numbers of a page, which occur once in it and on another page with its title."""
    title, text = page["title"], page["text"]
    texts = [f"{one['title']} {one['text']}" for one in pages if one["id"] != page["id"]]
    linked = [other for other in texts if title in other]
    return [
        match[0]
        for match in _ENTITY.finditer(text)
        if not _SENTENCE_START.search(text[: match.start()])
        and text.count(match[0]) == 1
        and match[0] not in title
        and any(match[0] in other for other in linked)
    ]


def _problem(page: Row, answers: Sequence[str]) -> dict[str, Any]:
    text = page["text"]
    for answer in answers:
        text = text.replace(answer, MASK)
    return {
        "id": f"{page['id']}-{len(answers)}",
        "prompt": f"Fill in: {page['title']}: {text}",
        "answers": [*answers],
        "masks": len(answers),
        "source": page["id"],
        "kind": "ramp",
    }


def questions(seed: int, persons: int) -> Problems:
    """Questions on the encyclopaedia of a seed, as `ramp` makes them: one answer and no source.

    The train split asks about `persons` persons only: labels are rare, pages are not.
    """
    made: Problems = {split: [] for split in SPLITS}
    counted = dict.fromkeys(SPLITS, 0)
    for family in families(seed):
        counted[family.split] += 1
        if family.split == "train" and counted["train"] > persons:
            continue
        for number, (prompt, answer) in enumerate(family.questions(), 1):
            facts = {"answers": [answer], "masks": 1, "source": "", "kind": "qa"}
            name = f"qa-{family.split}-{counted[family.split]}-{number}"
            made[family.split].append({"id": name, "prompt": prompt, **facts})
    return made


def write(folder: Path, pages: Sequence[Row], problems: Mapping[str, Problems]) -> None:
    """Write `pages.jsonl` and `ramp_train.jsonl`, ...: the same bytes for the same rows."""
    folder.mkdir(parents=True, exist_ok=True)
    files: Iterator[tuple[str, Sequence[Mapping[str, Any]]]] = (
        (f"{kind}_{split}", rows) for kind, made in problems.items() for split, rows in made.items()
    )
    for name, rows in (("pages", pages), *files):
        lines = (json.dumps(row, ensure_ascii=False) for row in rows)
        (folder / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines))


def main() -> None:
    """Build the files of a corpus."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the files are written")
    parser.add_argument("--corpus", default="", help="JSON lines or a folder; else generated")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--masks", type=int, default=4, help="the most masks of a paragraph")
    parser.add_argument("--persons", type=int, default=12, help="persons of training questions")
    given = parser.parse_args()
    pages = read(given.corpus) if given.corpus else encyclopaedia(given.seed)
    problems = {"ramp": ramp(pages, given.seed, given.masks)}
    if not given.corpus:
        problems["qa"] = questions(given.seed, given.persons)
    write(given.folder, pages, problems)


if __name__ == "__main__":
    main()
