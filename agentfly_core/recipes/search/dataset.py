"""Questions that need two pages of a generated encyclopaedia."""

import random
from collections.abc import Mapping
from itertools import product

from agentfly_core import Problem
from agentfly_core.datasets.names import people
from agentfly_core.datasets.splitting import sample
from agentfly_core.tools.search import rows

COUNTRIES = (
    *("Albania", "Bolivia", "Chile", "Denmark", "Egypt", "Finland", "Greece", "Hungary"),
    *("India", "Japan", "Kenya", "Latvia", "Mexico", "Norway", "Oman", "Peru"),
)
PROFESSIONS = (
    *("baker", "banker", "botanist", "carpenter", "chemist", "dancer", "doctor", "farmer"),
    *("gardener", "lawyer", "nurse", "painter", "pilot", "sailor", "singer", "teacher"),
)
ROLES = ("founder", "author")
QUESTIONS: Mapping[str, str] = {
    "country": "In which country was the {role} of {title} born?",
    "year": "In which year was the {role} of {title} born?",
    "profession": "What is the profession of the {role} of {title}?",
}


def encyclopaedia(
    seed: int, train: int, validation: int, test: int, corpus: str
) -> dict[str, list[Problem]]:
    """Make problems for each split, from the pages of an encyclopaedia in the file `corpus`:

        Problem("country-0417", "In which country was the founder of Amber Mills born?",
            {"answer": "Peru", "kind": "country", "pages": ["0417", "0082"]})

    The file data/raw/encyclopaedia.jsonl is such a corpus. `pages` in the facts has the ids of the
    two pages that are needed to find the answer. Each person, company or book belongs to one split,
    whatever the seed is. Raises ValueError if more problems are requested than exist, and for an
    unreadable corpus.
    """
    sizes = {"train": train, "validation": validation, "test": test}
    draw, by_split = random.Random(seed), people()
    pages = rows(corpus)
    persons = {page["title"]: page for page in pages if "country" in page}
    problems: dict[str, list[Problem]] = {split: [] for split in sizes}
    for (split, names), page, role, kind in product(by_split.items(), pages, ROLES, QUESTIONS):
        if page.get(role) in names:
            person = persons[page[role]]
            prompt = QUESTIONS[kind].format(role=role, title=page["title"])
            facts = {"answer": person[kind], "kind": kind, "pages": [page["id"], person["id"]]}
            problems[split].append(Problem(f"{kind}-{page['id']}", prompt, facts))
    return {split: sample(draw, problems[split], sizes[split], split) for split in sizes}
