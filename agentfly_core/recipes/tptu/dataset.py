"""Questions about generated databases of an office, with gold plans of one to four steps."""

import random
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from itertools import pairwise, permutations
from typing import Any

from agentfly_core import Problem, digest, generated
from agentfly_core.datasets.names import companies, people
from agentfly_core.recipes.tptu.plans import filled
from agentfly_core.tools.calculator import evaluate

_HERS = "FROM orders WHERE person = '{}'"
_STAFF = "FROM orders JOIN people ON person = name WHERE company = '{}'"
PARTS = {
    "amount": ("amount of order {}", "orders", "SELECT amount FROM orders WHERE number = {}"),
    "orders": ("number of orders of {}", "people", f"SELECT count(*) {_HERS}"),
    "spending": ("spending of {}", "people", f"SELECT sum(amount) {_HERS}"),
    "largest": ("largest order of {}", "people", f"SELECT max(amount) {_HERS}"),
    "staff": ("staff of {}", "companies", "SELECT count(*) FROM people WHERE company = '{}'"),
    "revenue": ("revenue of {}", "companies", f"SELECT sum(amount) {_STAFF}"),
}
"""Sub-questions by name, as tuples.

A tuple has the text of the sub-question, the kind of the entity in this text, and the right SQL.
"""
SIGNS = {"sum": "+", "difference": "-", "product": "*"}
KINDS = {"one": 1, "square": 1, "two": 2, "three": 3, "branch": 3}
"""Maps each kind of question to the number of its sub-questions."""
WORLDS, PEOPLE, COMPANIES, ORDERS = 3, 8, 4, 20
"""WORLDS is the number of a problem's databases in addition to the main database. Each database
contains the entities of the question. All other values are random.

PEOPLE, COMPANIES and ORDERS are the numbers of rows in the tables of a database.
"""
TABLES = """\
CREATE TABLE people (name TEXT, company TEXT);
CREATE TABLE companies (name TEXT, city TEXT);
CREATE TABLE orders (number INTEGER, person TEXT, amount INTEGER);
"""
CITIES = ("Avila", "Bergen", "Cork", "Delft", "Espoo", "Faro", "Ghent", "Haifa")
Entities = Mapping[str, Sequence[Any]]
"""The entities in a question: `{"orders": [482], "people": ["Ada Berg"], "companies": []}`."""


@generated
def office_plans(
    seed: int, train: int, validation: int, test: int, kinds: Sequence[str] = tuple(KINDS)
) -> dict[str, list[Problem]]:
    """Make problems for each split. Problem i is of the kind `kinds[i % len(kinds)]`:

        Problem("two-3f2a90c1d4e5b678", "What is the sum of the amount of order 482 and the staff "
            "of Amber Mills?", {"answer": "41", "kind": "two", "steps": 3, "plan": [{"tool": "sql",
            "subtask": "amount of order 482", "inputs": [], "depends_on": [], "code": "SELECT ..."},
            ...], "entities": {"orders": [482], ...}, "worlds": [17, 4, 93], "database": "CREATE
            ..."})

    `plan` is the right plan. `worlds` are the seeds of three further databases, which have the same
    entities but different values. A question may combine several sub-questions, such as the amount
    and the staff above. The combinations in test problems occur in no other split.
    Questions of different splits share no name of a person or company.
    """
    draw, sizes = random.Random(seed), {"train": train, "validation": validation, "test": test}
    return {
        split: [_problem(draw, kinds[number % len(kinds)], split) for number in range(size)]
        for split, size in sizes.items()
    }


def held_out(parts: Sequence[str]) -> bool:
    """Whether a combination of sub-questions is reserved for test problems.

    Let a and b be neighbours in the combination, in this order. The combination is reserved if b is
    two places after a in the list of all sub-questions (PARTS). For example, "spending" is two
    places after "amount", so ("amount", "spending") is reserved. After the last place, counting
    continues at the first place, so ("revenue", "orders") is also reserved.
    """
    order = list(PARTS)
    return any((order.index(b) - order.index(a)) % len(order) == 2 for a, b in pairwise(parts))


def script(seed: int, entities: Entities) -> str:
    """Return the SQL script of a database that contains these entities. All other rows and values
    are drawn at random with `seed`.
    """
    draw = random.Random(seed)
    firms = _more(draw, entities["companies"], companies()["train"], COMPANIES)
    names = _more(draw, entities["people"], people()["train"], PEOPLE)
    numbers = _more(draw, entities["orders"], range(100, 1000), ORDERS)
    rows: dict[str, list[tuple[Any, ...]]] = {
        "people": list(zip(names, _each(draw, firms, PEOPLE), strict=True)),
        "companies": [(firm, draw.choice(CITIES)) for firm in firms],
        "orders": [
            (number, name, draw.randint(10, 99))
            for number, name in zip(numbers, _each(draw, names, ORDERS), strict=True)
        ],
    }
    inserts = (f"INSERT INTO {t} VALUES {', '.join(map(str, r))};" for t, r in rows.items())
    return TABLES + "\n".join(inserts)


def results(database: str, statements: Sequence[str]) -> list[list[tuple[Any, ...]]]:
    """Run SQL statements on a new database, and return the rows of each statement.

    `database` is the SQL script that creates the database; see `script`. The statements are
    not checked, so they must be trusted.
    """
    with closing(sqlite3.connect(":memory:")) as opened:
        opened.executescript(database)
        return [opened.execute(statement).fetchall() for statement in statements]


def _problem(draw: random.Random, kind: str, split: str) -> Problem:
    combinations = [
        parts
        for parts in permutations(PARTS, KINDS[kind])
        if len(parts) == 1 or held_out(parts) == (split == "test")
    ]
    # until the two branches have unequal values, and each result differs between databases
    while True:
        parts = draw.choice(combinations)
        entities, steps = _steps(draw, parts, split)
        worlds = [draw.randrange(2**31) for _ in range(1 + WORLDS)]
        scripts = [script(world, entities) for world in worlds]
        statements = [step["code"] for step in steps]
        first, *others = [results(one, statements) for one in scripts]
        values = [rows[0][0] for rows in first]
        varied = all(len({str(rows) for rows in step}) > 1 for step in zip(*others, strict=True))
        if varied and (kind != "branch" or values[1] != values[2]):
            break
    prompt, plan, answer = _question(draw, kind, steps, values)
    facts = {"answer": str(answer), "kind": kind, "steps": len(plan), "plan": plan}
    facts |= {"entities": entities, "worlds": worlds[1:], "database": scripts[0]}
    return Problem(f"{kind}-{digest([prompt, scripts[0]])[:16]}", prompt, facts)


def _steps(
    draw: random.Random, parts: Sequence[str], split: str
) -> tuple[Entities, list[dict[str, Any]]]:
    pools = {"orders": range(100, 1000), "people": people()[split], "companies": companies()[split]}
    entities: dict[str, list[Any]] = {name: [] for name in pools}
    steps = []
    for part in parts:
        text, where, sql = PARTS[part]
        entity = draw.choice([one for one in pools[where] if one not in entities[where]])
        entities[where].append(entity)
        step = {"tool": "sql", "subtask": text.format(entity), "inputs": [], "depends_on": []}
        steps.append({**step, "code": sql.format(entity)})
    return entities, steps


def _question(
    draw: random.Random, kind: str, steps: list[dict[str, Any]], values: Sequence[int]
) -> tuple[str, list[dict[str, Any]], int]:
    texts = [f"the {step['subtask']}" for step in steps]
    if kind == "one":
        return f"What is {texts[0]}?", steps, values[0]
    if kind == "branch":
        first, above = steps[0], draw.random() < 0.5
        chosen = {**steps[1 if above else 2], "depends_on": [1]}
        limit = values[0] - 1 if above else values[0]
        prompt = (
            f"If {texts[0]} is above {limit}, what is {texts[1]}, otherwise what is {texts[2]}?"
        )
        return prompt, [first, chosen], values[1 if above else 2]
    operation = "square" if kind == "square" else draw.choice(list(SIGNS))
    listed = " and ".join(filter(None, [", ".join(texts[:-1]), texts[-1]]))
    numbers = range(1, len(steps) + 1)
    places = [f"{{{number}}}" for number in numbers]
    subtask = f"{operation} of {' and '.join(places)}"
    term = f" {SIGNS[operation]} ".join(places) if operation in SIGNS else "{1} ** 2"
    last = {
        "tool": "python",
        "subtask": subtask,
        "inputs": places,
        "depends_on": [*numbers],
        "code": f"print({term})",
    }
    answer = evaluate(filled(term, dict(zip(numbers, map(str, values), strict=True))))
    return f"What is the {operation} of {listed}?", [*steps, last], int(answer)


def _more(draw: random.Random, given: Sequence[Any], like: Sequence[Any], size: int) -> list[Any]:
    others = [one for one in like if one not in given]
    return [*given, *draw.sample(others, size - len(given))]


def _each(draw: random.Random, values: Sequence[Any], size: int) -> list[Any]:
    """Return a random list of length `size` in which each of `values` occurs at least once."""
    chosen = [*values, *draw.choices(values, k=size - len(values))]
    draw.shuffle(chosen)
    return chosen
