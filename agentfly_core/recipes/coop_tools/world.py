"""A seeded REST service: 57 endpoints, explanatory errors, and answers of 1 to 40 KB."""

import json
import random
import re
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import parse_qsl, urlsplit

KINDS = {"films": "film", "people": "person", "shops": "shop"}
ASPECTS = (
    ("ratings", "rankings"),
    ("reviews", "remarks"),
    ("awards", "honours"),
    ("visits", "tours"),
    ("sales", "offers"),
    ("prices", "costs"),
    ("partners", "friends"),
    ("places", "routes"),
)
"""Pairs of similar aspects, i.e. kinds of data. Each aspect of films, people and shops has an
endpoint, such as `/films/{id}/ratings`.
"""
OPTIONS = {
    "region": ("north", "south", "inland"),
    "season": ("spring", "autumn"),
    "grade": ("low", "middle", "high"),
}
"""Query parameters and their allowed values. Each endpoint such as `/films/{id}/ratings` requires
one of these parameters.
"""
FORMER = {"region": "area", "season": "quarter", "grade": "level"}
"""Maps each parameter's name to the former name, which outdated documentation contains."""
ENTITIES, PAGE = 30, 10
MOST_RECORDS = 340
DIGITS = re.compile("[0-9]{1,9}")
"""Matches one to nine digits, which `int` can convert.

`str.isdigit` would also accept ² and very long texts, which `int` refuses.
"""
_FIRST = ("Amber", "Birch", "Copper", "Dusk", "Elm", "Frost", "Gale", "Hazel", "Iron", "Jade")
_SECOND = ("Mill", "Harbour", "Lantern", "Meadow", "Orchard", "Quarry", "Signal", "Tower")
_SYLLABLES = ("ba", "do", "ki", "lu", "me", "na", "po", "ri", "su", "te")


@dataclass(frozen=True)
class RestEndpoint:
    """The documentation of an endpoint: path, summary, and a text for each parameter.

    `RestEndpoint("/films/{id}/ratings", "...", {"region": "required, one of north, south"})`
    """

    path: str
    summary: str
    parameters: dict[str, str]

    @property
    def document(self) -> str:
        """The text of the documentation, as a model reads it."""
        parameters = "".join(f"\n  {name}: {text}" for name, text in self.parameters.items())
        return f"GET {self.path}: {self.summary}{parameters}"


@dataclass(frozen=True)
class HttpAnswer:
    """The answer to a request: `HttpAnswer(404, '{"error": "..."}')`."""

    status: int
    body: str


class RestWorld:
    """A REST service with films, people and shops. The seed determines its content.

    Requests change nothing. Each kind of data (aspect) of films, people and shops has an endpoint,
    such as `/films/{id}/ratings`. Each such endpoint requires a parameter. The documentation of
    about one third of these endpoints contains an outdated name of the parameter. The answer to a
    request with the outdated name is an error that contains the right name. Paths in `down` answer
    with the status 503.
    """

    def __init__(self, seed: int, down: frozenset[str] = frozenset()) -> None:
        self.seed, self.down = seed, down

    @cached_property
    def names(self) -> dict[str, list[str]]:
        """The names of all films, people and shops. The first name of each list has the id 1."""
        draw = self._draw("names")
        pairs = [f"{first} {second}" for first in _FIRST for second in _SECOND]
        return {kind: draw.sample(pairs, ENTITIES) for kind in KINDS}

    @cached_property
    def endpoints(self) -> dict[str, RestEndpoint]:
        """All endpoints by path."""
        page = {"page": f"optional, a number from 1 to {ENTITIES // PAGE}"}
        made = list[RestEndpoint]()
        for kind, single in KINDS.items():
            made += [
                RestEndpoint(f"/{kind}", f"All {kind} with their ids.", page),
                RestEndpoint(
                    f"/{kind}/search",
                    f"The id of a {single}.",
                    {"name": "required, the whole name"},
                ),
                RestEndpoint(f"/{kind}/{{id}}", f"The name of a {single}.", {}),
            ]
            made += [self._aspect(kind, aspect) for pair in ASPECTS for aspect in pair]
        return {one.path: one for one in made}

    def parameter(self, kind: str, aspect: str) -> str:
        """Return the name of the parameter that the endpoint `/kind/{id}/aspect` requires.

        For example, `parameter("films", "ratings")` may be "region".
        """
        return self._draw("parameter", kind, aspect).choice(sorted(OPTIONS))

    def is_outdated(self, kind: str, aspect: str) -> bool:
        """Whether an endpoint's documentation contains an outdated name of the parameter.

        For example, `is_outdated("films", "ratings")` is about the endpoint `/films/{id}/ratings`.
        """
        return self._draw("outdated", kind, aspect).random() < 1 / 3

    def records(self, kind: str, number: int, aspect: str, option: str) -> dict[str, int]:
        """Return the data of an endpoint, i.e. a number for each name: `{"badokilu": 417, ...}`.

        For example, `records("films", 7, "ratings", "north")` returns the data of
        `/films/7/ratings?region=north`.
        """
        size = self._draw("size", kind, aspect).choice([12, 40, 120, MOST_RECORDS])
        draw = self._draw(kind, str(number), aspect, option)
        words = ["".join(draw.choices(_SYLLABLES, k=4)) for _ in range(size)]
        return {word: draw.randrange(1000) for word in words}

    def get(self, url: str) -> HttpAnswer:
        """Answer a request such as `/films/7/ratings?region=north`."""
        try:
            parts = urlsplit(url)
        except ValueError as error:
            return _error(400, f"This is not a URL: {error}.")
        given = dict(parse_qsl(parts.query))
        match = re.fullmatch(r"/(\w+)(?:/([^/]+))?(?:/(\w+))?", parts.path)
        kind, one, aspect = match.groups() if match else ("", None, None)
        path = f"/{kind}" + (f"/{{id}}/{aspect}" if aspect else "")
        path += "" if aspect or one is None else "/search" if one == "search" else "/{id}"
        if path in self.down:
            return _error(503, "The service is down.")
        if path not in self.endpoints:
            return _error(404, f"{parts.path} does not exist.")
        if one is None:
            return self._listed(kind, given)
        if one == "search":
            return self._search(kind, given)
        if not DIGITS.fullmatch(one):
            hint = f"/{kind}/search?name=NAME gives the id"
            return _error(400, f"{one} is not an id: {hint}.")
        if not 1 <= int(one) <= ENTITIES:
            return _error(404, f"{KINDS[kind]} {one} does not exist.")
        if aspect is None:
            return _ok({"id": int(one), "name": self.names[kind][int(one) - 1]})
        return self._values(kind, int(one), aspect, given)

    def _listed(self, kind: str, given: dict[str, str]) -> HttpAnswer:
        page = given.get("page", "1")
        if not DIGITS.fullmatch(page) or not 1 <= int(page) <= ENTITIES // PAGE:
            return _error(400, f"page is {page}; pages are 1 to {ENTITIES // PAGE}.")
        begin = PAGE * (int(page) - 1)
        names = enumerate(self.names[kind][begin : begin + PAGE], begin + 1)
        items = [{"id": number, "name": name} for number, name in names]
        return _ok({"page": int(page), "pages": ENTITIES // PAGE, "items": items})

    def _search(self, kind: str, given: dict[str, str]) -> HttpAnswer:
        if "name" not in given:
            return _error(400, "The parameter name is missing.")
        if given["name"] not in self.names[kind]:
            return _error(404, f"No {KINDS[kind]} has this name.")
        return _ok({"id": self.names[kind].index(given["name"]) + 1, "name": given["name"]})

    def _values(self, kind: str, number: int, aspect: str, given: dict[str, str]) -> HttpAnswer:
        parameter = self.parameter(kind, aspect)
        values = OPTIONS[parameter]
        for name in given.keys() - {parameter}:
            return _error(400, f"The parameter {name} is unknown; use {parameter}.")
        if given.get(parameter) not in values:
            return _error(400, f"{parameter} must be one of {', '.join(values)}.")
        records = self.records(kind, number, aspect, given[parameter])
        note = "one of the entries that this service keeps for " + self.names[kind][number - 1]
        items = [{"key": key, "data": {"value": v, "note": note}} for key, v in records.items()]
        return _ok({"count": len(items), "items": items})

    def _aspect(self, kind: str, aspect: str) -> RestEndpoint:
        parameter = self.parameter(kind, aspect)
        name = FORMER[parameter] if self.is_outdated(kind, aspect) else parameter
        text = f"required, one of {', '.join(OPTIONS[parameter])}"
        summary = f"The {aspect} of a {KINDS[kind]} by keyword."
        return RestEndpoint(f"/{kind}/{{id}}/{aspect}", summary, {name: text})

    def _draw(self, *names: str) -> random.Random:
        return random.Random("/".join([str(self.seed), *names]))


def _ok(value: dict[str, object]) -> HttpAnswer:
    return HttpAnswer(200, json.dumps(value))


def _error(status: int, text: str) -> HttpAnswer:
    return HttpAnswer(status, json.dumps({"error": text}))
