"""Scripts that show a model its tools before reinforcement learning; a share of the episodes goes wrong on purpose.

A model that has learned from them knows the way, and still has something to learn from rewards.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from agentfly_core.datasets.powers import EXPONENTS
from agentfly_core.datasets.shop import COUNTS
from agentfly_core.formats import hashing
from agentfly_core.records.trajectory import Message, Problem, ToolCall
from agentfly_core.templates.chatml import reply_text
from agentfly_core.tools.calculator import evaluate
from agentfly_core.tools.calculator import written as number

Script = Callable[[str, int, int], str]
Play = Callable[[random.Random, Problem], list[str]]


def calculator(problems: Sequence[Problem], seed: int, spoilt: float = 0.3) -> Script:
    """Call the calculator, then answer with what it said.

    For sums of `datasets.arithmetic`, and for problems whose fact `expression` says what to work out. A share
    `spoilt` of the episodes guesses, mistypes the sum, takes another operation or misreads the result.
    """
    return _script(problems, seed, spoilt, _work_out, (_guess, _mistype, _take_another_operation, _misread))


def shop(problems: Sequence[Problem], seed: int, spoilt: float = 0.3) -> Script:
    """Wishes of `datasets.shop`: for each line search the product and put it into the cart; then check out.

    A share `spoilt` of the episodes forgets a line, takes a wrong number of something or a wrong key, or never pays.
    """
    return _script(problems, seed, spoilt, _buy, (_forget, _miscount, _mistake_the_key, _walk_out))


def python(problems: Sequence[Problem], seed: int, spoilt: float = 0.3) -> Script:
    """Sums of `datasets.powers`: run a program that works one out, then answer with what it printed.

    A share `spoilt` of the episodes guesses, mistypes a bound, takes another exponent or misreads what was printed.
    """
    return _script(
        problems, seed, spoilt, _program, (_guess_the_sum, _mistype_a_bound, _take_another_exponent, _misprint)
    )


def idler(problems: Sequence[Problem], seed: int) -> Script:
    """Whatever is asked, it says that it does not know."""
    return lambda problem, chain, turn: "I do not know."


def _script(problems: Sequence[Problem], seed: int, spoilt: float, good: Play, bad: Sequence[Play]) -> Script:
    by_id = {problem.id: problem for problem in problems}

    def script(problem: str, chain: int, turn: int) -> str:
        draw = random.Random(hashing.seed(seed, "demonstration", problem, chain))
        play = draw.choice(bad) if draw.random() < spoilt else good
        return play(draw, by_id[problem])[turn]

    return script


def _call(name: str, **arguments: Any) -> str:
    return reply_text(Message("assistant", "", (ToolCall(name, arguments),)))


def _sum(problem: Problem) -> str:
    asked = problem.prompt.removeprefix("What is ").removesuffix("?")
    return str(problem.facts.get("expression", asked))


def _slip(draw: random.Random, text: str) -> str:
    """The text with one digit replaced by another; no number begins with 0 that did not before."""
    place = draw.choice([i for i, letter in enumerate(text) if letter.isdigit()])
    return text[:place] + draw.choice([d for d in "123456789" if d != text[place]]) + text[place + 1 :]


def _sums(expression: str, misread: Callable[[str], str] = str) -> list[str]:
    result = number(evaluate(expression))
    return [_call("calculator", expression=expression), _call("answer", answer=misread(result))]


def _work_out(draw: random.Random, problem: Problem) -> list[str]:
    return _sums(_sum(problem))


def _guess(draw: random.Random, problem: Problem) -> list[str]:
    return [_call("answer", answer=_slip(draw, number(evaluate(_sum(problem)))))]


def _mistype(draw: random.Random, problem: Problem) -> list[str]:
    return _sums(_slip(draw, _sum(problem)))


def _take_another_operation(draw: random.Random, problem: Problem) -> list[str]:
    expression = _sum(problem)
    (sign,) = set(expression) & set("+-*")
    return _sums(expression.replace(sign, draw.choice([other for other in "+-*" if other != sign])))


def _misread(draw: random.Random, problem: Problem) -> list[str]:
    return _sums(_sum(problem), lambda result: _slip(draw, result))


def _programs(exponent: int, first: int, bound: int, misread: Callable[[str], str] = str) -> list[str]:
    code = f"print(sum(i**{exponent} for i in range({first}, {bound})))"
    printed = str(sum(i**exponent for i in range(first, bound)))
    return [_call("python", code=code), _call("answer", answer=misread(printed))]


def _program(draw: random.Random, problem: Problem) -> list[str]:
    return _programs(*problem.facts["bounds"])


def _guess_the_sum(draw: random.Random, problem: Problem) -> list[str]:
    return [_call("answer", answer=_slip(draw, problem.facts["answer"]))]


def _mistype_a_bound(draw: random.Random, problem: Problem) -> list[str]:
    exponent, first, bound = problem.facts["bounds"]
    return _programs(exponent, first, draw.choice([other for other in range(10, 100) if other not in (first, bound)]))


def _take_another_exponent(draw: random.Random, problem: Problem) -> list[str]:
    exponent, first, bound = problem.facts["bounds"]
    return _programs(draw.choice([other for other in EXPONENTS if other != exponent]), first, bound)


def _misprint(draw: random.Random, problem: Problem) -> list[str]:
    exponent, first, bound = problem.facts["bounds"]
    return _programs(exponent, first, bound, lambda printed: _slip(draw, printed))


def _wish(problem: Problem) -> list[tuple[str, int]]:
    """Keys and counts in the order in which the prompt names the products."""
    products = problem.facts["products"]
    return sorted(problem.facts["order"].items(), key=lambda line: problem.prompt.index(products[line[0]]["name"]))


def _lines(problem: Problem, wish: Iterable[tuple[str, int]]) -> list[str]:
    products = problem.facts["products"]
    return [
        text
        for key, count in wish
        for text in (_call("search", words=products[key]["name"]), _call("add_to_cart", key=key, count=count))
    ]


def _buy(draw: random.Random, problem: Problem) -> list[str]:
    return [*_lines(problem, _wish(problem)), _call("checkout")]


def _forget(draw: random.Random, problem: Problem) -> list[str]:
    return [*_lines(problem, _wish(problem)[:-1]), _call("checkout")]


def _miscount(draw: random.Random, problem: Problem) -> list[str]:
    wish = _wish(problem)
    place = draw.randrange(len(wish))
    key, count = wish[place]
    wish[place] = key, draw.choice([other for other in COUNTS if other != count])
    return [*_lines(problem, wish), _call("checkout")]


def _mistake_the_key(draw: random.Random, problem: Problem) -> list[str]:
    replies = _buy(draw, problem)
    place = draw.randrange(1, len(replies), 2)
    key, count = _wish(problem)[place // 2]
    replies[place] = _call("add_to_cart", key=_slip(draw, key), count=count)
    return replies


def _walk_out(draw: random.Random, problem: Problem) -> list[str]:
    return [*_lines(problem, _wish(problem)), "Done."]
