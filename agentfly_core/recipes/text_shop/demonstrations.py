"""Demonstrations for `recipes.text_shop`, by a scripted policy that reads the shop's pages."""

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from agentfly_core import Conversation, Problem, call_text
from agentfly_core.datasets.players import Demonstrator, mistake, observed

MISTAKES = ("walk out", "take another", "mistake the option")
GIVES_UP = "Nothing fits."
Line = tuple[str, str, int]
"""A product in search results, with its title and price: `("4172", "slim cotton shirt", 23)`."""
_WISH = re.compile(r"Buy an? ([a-z ]+?)(?: \(([a-z, ]+)\))? for at most \$(\d+)\.")
_LINE = re.compile(r"^(\d{4}) ([a-z ]+) \$(\d+)$", re.MULTILINE)
_OPTIONS = re.compile(r"^([a-z]+): ([a-z, ]+)$", re.MULTILINE)
_PAGE = re.compile(r"^page (\d+) of (\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class WantedProduct:
    """The product that a prompt asks for: `WantedProduct("slim cotton shirt", ("red",), 40)`.

    Its title must contain all `words`, it must have all `options`, and its price must be at most
    `limit`.
    """

    words: str
    options: tuple[str, ...]
    limit: int

    def fits(self, title: str, price: int) -> bool:
        """Whether this title contains all `words`, and this price is at most `limit`."""
        return {*self.words.split()} <= {*title.split()} and price <= self.limit


def text_shop(problems: Sequence[Problem], seed: int, spoilt: float = 0.3) -> Demonstrator:
    """Return a policy that buys the first fitting product that it finds.

    The policy searches for the words of the requested product. It views results with a fitting
    title and price one after another, until a product has all wanted options. In a share `spoilt`
    of the episodes, the policy makes a mistake: it buys nothing, a wrong product or a wrong option.
    """

    async def policy(conversation: Conversation) -> str:
        wanted, pages = understood(conversation.problem.prompt), observed(conversation)
        seen, lines = dict(viewed(pages)), [line for page in pages for line in listed(page)]
        for product, options in seen.items():
            if {*wanted.options} <= {value for values in options.values() for value in values}:
                wrong = mistake(conversation, seed, spoilt, MISTAKES)
                return _decided(conversation, wanted, lines, product, options, wrong)
        for product, title, price in lines:
            if wanted.fits(title, price) and product not in seen:
                return call_text("view", product=product)
        if not pages:
            return call_text("browse", words=wanted.words)
        for page, last in reversed([entry for text in pages for entry in _PAGE.findall(text)]):
            if int(page) < int(last):
                return call_text("browse", words=wanted.words, page=int(page) + 1)
        return GIVES_UP

    return policy


def understood(prompt: str) -> WantedProduct:
    """Parse the requested product in a prompt.

    Raises ValueError if the prompt does not have the form of a prompt of `recipes.text_shop`.
    """
    match = _WISH.fullmatch(prompt)
    if match is None:
        raise ValueError(f"Got the prompt {prompt!r}, expected a prompt of recipes.text_shop.")
    options = tuple(match[2].split(", ")) if match[2] else ()
    return WantedProduct(match[1], options, int(match[3]))


def listed(page: str) -> list[Line]:
    return [(product, title, int(price)) for product, title, price in _LINE.findall(page)]


def viewed(pages: Sequence[str]) -> Iterator[tuple[str, Mapping[str, list[str]]]]:
    """Yield the id and the options of each product on the given pages.

    An example is `("4172", {"colour": ["red", "grey"]})`. Pages of search results are skipped.
    """
    for page in pages:
        options = {kind: values.split(", ") for kind, values in _OPTIONS.findall(page)}
        if options:
            yield listed(page)[0][0], options


def _decided(
    conversation: Conversation,
    wanted: WantedProduct,
    lines: Sequence[Line],
    product: str,
    options: Mapping[str, list[str]],
    wrong: str,
) -> str:
    draw = random.Random(conversation.seed)
    chosen = list(wanted.options)
    others = [other for other, title, price in lines if not wanted.fits(title, price)]
    if wrong == "take another" and others:
        return call_text("buy", product=draw.choice(others))
    if wrong == "mistake the option" and chosen:
        [offered] = [values for values in options.values() if chosen[0] in values]
        chosen[0] = draw.choice([value for value in offered if value != chosen[0]])
        return call_text("buy", product=product, options=chosen)
    return GIVES_UP if wrong else call_text("buy", product=product, options=chosen)
