"""Questions on the database of an office, made up for each: who ordered what, and works where."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from agentfly_core.datasets.names import companies, people
from agentfly_core.records.generated_dataset import generated
from agentfly_core.records.trajectory import Problem
from agentfly_core.system.formats import hashing

CITIES = (
    "Avila",
    "Bergen",
    "Cork",
    "Delft",
    "Espoo",
    "Faro",
    "Ghent",
    "Haifa",
    "Izmir",
    "Jena",
    "Kyoto",
    "Lyon",
    "Malmo",
    "Nice",
    "Oulu",
    "Pisa",
)
COMPANIES, LARGEST = 4, 7
"""Companies of a database, and the most people of one; each has as many as another may have."""
MOST_ORDERS = 7
"""The most orders of a person; the fewest is one."""
NUMBERS = range(10, 100)
ORDERS, AMOUNTS = range(100, 1000), range(10, 100)
_TABLES = """\
CREATE TABLE orders (number INTEGER PRIMARY KEY, person INTEGER, amount INTEGER);
CREATE TABLE people (number INTEGER PRIMARY KEY, name TEXT, company INTEGER);
CREATE TABLE companies (number INTEGER PRIMARY KEY, name TEXT, city INTEGER);
CREATE TABLE cities (number INTEGER PRIMARY KEY, name TEXT);
"""


@dataclass(frozen=True, slots=True)
class Person:
    """`Person(57, "Anna Berg", company=31)`, of the company with this number."""

    number: int
    name: str
    company: int


@dataclass(frozen=True, slots=True)
class Company:
    """`Company(31, "Amber Mills", city=12)`, in the city with this number."""

    number: int
    name: str
    city: int


@dataclass(frozen=True, slots=True)
class Order:
    """`Order(482, person=57, amount=36)`, placed by the person with this number."""

    number: int
    person: int
    amount: int


@dataclass(frozen=True, slots=True)
class Records:
    """All that a database holds; people and companies by their number, and the cities' names."""

    orders: Sequence[Order]
    people: Mapping[int, Person]
    companies: Mapping[int, Company]
    cities: Mapping[int, str]

    def of_person(self, number: int) -> list[Order]:
        """The orders that a person placed."""
        return [order for order in self.orders if order.person == number]

    def staff(self, number: int) -> list[Person]:
        """The people of a company."""
        return [person for person in self.people.values() if person.company == number]

    def script(self) -> str:
        """The SQL that makes the database."""
        rows: dict[str, list[tuple[int | str, ...]]] = {
            "orders": [(o.number, o.person, o.amount) for o in self.orders],
            "people": [(p.number, p.name, p.company) for p in self.people.values()],
            "companies": [(c.number, c.name, c.city) for c in self.companies.values()],
            "cities": list(self.cities.items()),
        }
        filled = [
            f"INSERT INTO {table} VALUES {', '.join(map(str, values))};"
            for table, values in rows.items()
        ]
        return _TABLES + "\n".join(filled)


@dataclass(frozen=True, slots=True)
class OfficeQuestion:
    """What a question is about: an order, who placed it, and the company that they work for."""

    records: Records
    order: Order
    person: Person
    company: Company

    @property
    def orders(self) -> int:
        """How many orders the person placed."""
        return len(self.records.of_person(self.person.number))

    @property
    def spent(self) -> int:
        """How much the person ordered in all."""
        return sum(order.amount for order in self.records.of_person(self.person.number))

    @property
    def colleagues(self) -> int:
        """How many people work for the company."""
        return len(self.records.staff(self.company.number))

    @property
    def city(self) -> str:
        """Where the company is."""
        return self.records.cities[self.company.city]


@dataclass(frozen=True, slots=True)
class QuestionKind:
    """A kind of question: its text, how many lookups lead to the answer, and the answer."""

    text: str
    steps: int
    answer: Callable[[OfficeQuestion], str | int]


KINDS = {
    "amount": QuestionKind("How much is order {order}?", 1, attrgetter("order.amount")),
    "buyer": QuestionKind("Who placed order {order}?", 2, attrgetter("person.name")),
    "orders": QuestionKind("How many orders did {person} place?", 2, attrgetter("orders")),
    "spent": QuestionKind("How much did {person} order in all?", 2, attrgetter("spent")),
    "company": QuestionKind(
        "Which company does the person who placed order {order} work for?",
        3,
        attrgetter("company.name"),
    ),
    "colleagues": QuestionKind(
        "How many people work for the company of the person who placed order {order}?",
        3,
        attrgetter("colleagues"),
    ),
    "city": QuestionKind(
        "In which city is the company of the person who placed order {order}?",
        4,
        attrgetter("city"),
    ),
}


@generated
def office(seed: int, train: int, validation: int, test: int) -> dict[str, list[Problem]]:
    """Problems for each split, each with a database of its own, the kinds of KINDS in turn:

        Problem("city-3f2a90c1d4e5b678", "In which city is the company of the person who placed "
            "order 482?", {"answer": "Lyon", "kind": "city", "steps": 4, "database": "CREATE ..."})

    No split has a person or a company of another's, under any seed.
    """
    sizes = {"train": train, "validation": validation, "test": test}
    draw = random.Random(seed)
    names, firms = people(), companies()
    return {
        split: [
            problem(list(KINDS)[number % len(KINDS)], drawn(draw, names[split], firms[split]))
            for number in range(size)
        ]
        for split, size in sizes.items()
    }


def problem(kind: str, question: OfficeQuestion) -> Problem:
    """The question of a kind; its id is made of it and of the database."""
    chosen, script = KINDS[kind], question.records.script()
    prompt = chosen.text.format(order=question.order.number, person=question.person.name)
    facts: dict[str, Any] = {
        "answer": str(chosen.answer(question)),
        "kind": kind,
        "steps": chosen.steps,
        "database": script,
    }
    return Problem(f"{kind}-{hashing.short(prompt, script)}", prompt, facts)


def drawn(draw: random.Random, names: Sequence[str], firms: Sequence[str]) -> OfficeQuestion:
    """A database with these people and companies, and its questions.

    Companies are drawn before their people, so that large ones are not likelier.
    """
    sizes = [draw.randint(1, LARGEST) for _ in range(COMPANIES)]
    numbers = iter(draw.sample(NUMBERS, 2 * COMPANIES + sum(sizes)))
    cities = {next(numbers): name for name in draw.sample(CITIES, COMPANIES)}
    located = zip(
        draw.sample(firms, COMPANIES), draw.sample(sorted(cities), COMPANIES), strict=True
    )
    companies = [Company(next(numbers), name, city) for name, city in located]
    employers = [
        company.number for company, size in zip(companies, sizes, strict=True) for _ in range(size)
    ]
    hired = zip(draw.sample(names, len(employers)), employers, strict=True)
    people = [Person(next(numbers), name, employer) for name, employer in hired]
    buyers = [person.number for person in people for _ in range(draw.randint(1, MOST_ORDERS))]
    draw.shuffle(buyers)
    taken = zip(draw.sample(ORDERS, len(buyers)), buyers, strict=True)
    orders = [Order(number, buyer, draw.choice(AMOUNTS)) for number, buyer in taken]
    records = Records(
        orders,
        {person.number: person for person in people},
        {company.number: company for company in companies},
        cities,
    )
    company = draw.choice(list(records.companies.values()))
    person = draw.choice(records.staff(company.number))
    return OfficeQuestion(records, draw.choice(records.of_person(person.number)), person, company)
