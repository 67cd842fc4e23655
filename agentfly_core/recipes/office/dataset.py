"""Questions about generated databases of an office, with orders, people and companies."""

import random
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentfly_core import Problem, digest, generated
from agentfly_core.datasets.names import companies, people

CITIES = (
    *("Avila", "Bergen", "Cork", "Delft", "Espoo", "Faro", "Ghent", "Haifa"),
    *("Izmir", "Jena", "Kyoto", "Lyon", "Malmo", "Nice", "Oulu", "Pisa"),
)
COMPANIES, LARGEST = 4, 7
"""The number of companies in a database, and the largest number of people in a company."""
MOST_ORDERS = 7
"""The largest number of orders of a person."""
NUMBERS = range(10, 100)
ORDERS, AMOUNTS = range(100, 1000), range(10, 100)
_TABLES = """\
CREATE TABLE orders (number INTEGER PRIMARY KEY, person INTEGER, amount INTEGER);
CREATE TABLE people (number INTEGER PRIMARY KEY, name TEXT, company INTEGER);
CREATE TABLE companies (number INTEGER PRIMARY KEY, name TEXT, city INTEGER);
CREATE TABLE cities (number INTEGER PRIMARY KEY, name TEXT);
"""

QUESTIONS = tomllib.loads(Path(__file__).with_name("questions.toml").read_text())
KINDS = {kind: (one["question"], len(one["lookups"])) for kind, one in QUESTIONS.items()}
"""For each kind of question: its text, and the number of lookups that the answer needs."""
Tables = dict[str, list[tuple[Any, ...]]]


@generated
def office(seed: int, train: int, validation: int, test: int) -> dict[str, list[Problem]]:
    """Make problems for each split. Problem i is of the kind `list(KINDS)[i % len(KINDS)]`:

        Problem("city-3f2a90c1d4e5b678", "In which city is the company of the person who placed "
            "order 482?", {"answer": "Lyon", "kind": "city", "steps": 4, "database": "CREATE ..."})

    Each problem has its own database. `steps` is the number of lookups that the answer needs. A
    person or company occurs in only one split. The split of a name does not depend on the seed.
    """
    sizes = {"train": train, "validation": validation, "test": test}
    draw = random.Random(seed)
    names, firms = people(), companies()
    return {
        split: [
            _problem(draw, list(KINDS)[number % len(KINDS)], names[split], firms[split])
            for number in range(size)
        ]
        for split, size in sizes.items()
    }


def _problem(draw: random.Random, kind: str, names: Sequence[str], firms: Sequence[str]) -> Problem:
    """Make a problem.

    The id of the problem consists of its kind and a digest of the question and the database.
    """
    text, steps = KINDS[kind]
    tables = _tables(draw, names, firms)
    values = _values(draw, tables)
    prompt = text.format(**values)
    filled = [
        f"INSERT INTO {table} VALUES {', '.join(map(str, rows))};" for table, rows in tables.items()
    ]
    script = _TABLES + "\n".join(filled)
    facts = {"answer": str(values[kind]), "kind": kind, "steps": steps, "database": script}
    return Problem(f"{kind}-{digest([prompt, script])[:16]}", prompt, facts)


def _tables(draw: random.Random, names: Sequence[str], firms: Sequence[str]) -> Tables:
    sizes = [draw.randint(1, LARGEST) for _ in range(COMPANIES)]
    numbers = iter(draw.sample(NUMBERS, 2 * COMPANIES + sum(sizes)))
    cities = [(next(numbers), name) for name in draw.sample(CITIES, COMPANIES)]
    located = zip(
        draw.sample(firms, COMPANIES),
        draw.sample(sorted(number for number, _ in cities), COMPANIES),
        strict=True,
    )
    companies = [(next(numbers), firm, city) for firm, city in located]
    employers = [
        number for (number, *_), size in zip(companies, sizes, strict=True) for _ in range(size)
    ]
    hired = zip(draw.sample(names, len(employers)), employers, strict=True)
    people = [(next(numbers), name, employer) for name, employer in hired]
    buyers = [number for number, *_ in people for _ in range(draw.randint(1, MOST_ORDERS))]
    draw.shuffle(buyers)
    placed = zip(draw.sample(ORDERS, len(buyers)), buyers, strict=True)
    orders = [(number, buyer, draw.choice(AMOUNTS)) for number, buyer in placed]
    return {"orders": orders, "people": people, "companies": companies, "cities": cities}


def _values(draw: random.Random, tables: Tables) -> dict[str, Any]:
    """Draw an order, and return the values for questions about this order.

    Some values fill the text of a question, such as `order`. The other values are answers: for
    example, `city` is the answer to a question of the kind "city". The order belongs to a person of
    a randomly drawn company. Each company has the same probability, even if it has few orders.
    """
    company, firm, city = draw.choice(tables["companies"])
    staff = [row for row in tables["people"] if row[2] == company]
    buyer, person, _ = draw.choice(staff)
    placed = [row for row in tables["orders"] if row[1] == buyer]
    order, _, amount = draw.choice(placed)
    return {
        "order": order,
        "person": person,
        "amount": amount,
        "buyer": person,
        "orders": len(placed),
        "spent": sum(amount for _, _, amount in placed),
        "company": firm,
        "colleagues": len(staff),
        "city": dict(tables["cities"])[city],
    }
