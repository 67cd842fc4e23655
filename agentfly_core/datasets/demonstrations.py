"""Policies that show a model its tools before reinforcement learning; a share of the episodes goes
wrong on purpose.

A model that has learned from them knows the way, and still has something to learn from rewards.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.datasets.powers import EXPONENTS
from agentfly_core.datasets.shop import COUNTS
from agentfly_core.formats import hashing
from agentfly_core.records.trajectory import Problem
from agentfly_core.templates.chatml import call_text
from agentfly_core.tools.calculator import evaluate
from agentfly_core.tools.calculator import written as number

Script = Callable[[Conversation], Awaitable[str]]
Play = Callable[[random.Random, Problem, str], list[str]]


def calculator(problems: Sequence[Problem], seed: int, spoilt: float = 0.3) -> Script:
    """Call the calculator, then answer with what it said.

    For sums of `datasets.arithmetic`, and for problems whose fact `expression` says what to work
    out. A share `spoilt` of the episodes guesses, mistypes the sum, takes another operation or
    misreads the result.
    """
    return _script(
        seed, spoilt, _calculate, "guess", "mistype", "take another operation", "misread"
    )


def react(problems: Sequence[Problem], seed: int, spoilt: float = 0.3) -> Script:
    """The same sums and mistakes as `calculator`, said in the form of `agents.react`: a thought, an
    action and its input, and then the final answer.
    """
    return _script(seed, spoilt, _react, "guess", "mistype", "take another operation", "misread")


def shop(problems: Sequence[Problem], seed: int, spoilt: float = 0.3) -> Script:
    """Wishes of `datasets.shop`: for each line search the product and put it into the cart; then
    check out.

    A share `spoilt` of the episodes forgets a line, takes a wrong number of something or a wrong
    key, or never pays.
    """
    return _script(seed, spoilt, _buy, "forget", "miscount", "mistake the key", "walk out")


def python(problems: Sequence[Problem], seed: int, spoilt: float = 0.3) -> Script:
    """Sums of `datasets.powers`: run a program that works one out, then answer with what it
    printed.

    A share `spoilt` of the episodes guesses, mistypes a bound, takes another exponent or misreads
    what was printed.
    """
    return _script(
        seed,
        spoilt,
        _program,
        "guess",
        "mistype a bound",
        "take another exponent",
        "misread",
    )


def code_block(problems: Sequence[Problem], seed: int, spoilt: float = 0.3) -> Script:
    """The same programs and mistakes as `python`, said in the form of `agents.code_block`: a block
    of Python, and then the answer alone.
    """
    mistakes = ("guess", "mistype a bound", "take another exponent", "misread")
    return _script(seed, spoilt, _block, *mistakes)


def idler(problems: Sequence[Problem], seed: int) -> Script:
    """Whatever is asked, it says that it does not know."""

    async def policy(conversation: Conversation) -> str:
        return "I do not know."

    return policy


def _script(seed: int, spoilt: float, play: Play, *mistakes: str) -> Script:
    async def policy(conversation: Conversation) -> str:
        problem = conversation.problem
        draw = random.Random(hashing.seed(seed, "demonstration", problem.id, conversation.chain))
        mistake = draw.choice(mistakes) if draw.random() < spoilt else ""
        return play(draw, problem, mistake)[conversation.turn]

    return policy


def _calculate(draw: random.Random, problem: Problem, mistake: str) -> list[str]:
    expression, answer = _calculation(draw, problem, mistake)
    calls = [call_text("calculator", expression=expression)] if expression else []
    return [*calls, call_text("answer", answer=answer)]


def _react(draw: random.Random, problem: Problem, mistake: str) -> list[str]:
    expression, answer = _calculation(draw, problem, mistake)
    asks = (
        "Thought: The calculator can work that out.\n"
        f"Action: calculator\nAction Input: {expression}\nObservation:"
    )
    answers = f"Thought: I know the answer.\nFinal Answer: {answer}"
    return [asks, answers] if expression else [answers]


def _calculation(draw: random.Random, problem: Problem, mistake: str) -> tuple[str, str]:
    """What the calculator is asked, which is nothing for a guess, and what is answered."""
    asked = problem.prompt.removeprefix("What is ").removesuffix("?")
    expression = str(problem.facts.get("expression", asked))
    if mistake == "guess":
        return "", _slip(draw, number(evaluate(expression)))
    if mistake == "mistype":
        expression = _slip(draw, expression)
    elif mistake == "take another operation":
        (sign,) = set(expression) & set("+-*")
        other = draw.choice([other for other in "+-*" if other != sign])
        expression = expression.replace(sign, other)
    result = number(evaluate(expression))
    return expression, _slip(draw, result) if mistake == "misread" else result


def _program(draw: random.Random, problem: Problem, mistake: str) -> list[str]:
    code, answer = _programming(draw, problem, mistake)
    calls = [call_text("python", code=code)] if code else []
    return [*calls, call_text("answer", answer=answer)]


def _block(draw: random.Random, problem: Problem, mistake: str) -> list[str]:
    code, answer = _programming(draw, problem, mistake)
    return [f"```python\n{code}\n```\n", answer] if code else [answer]


def _programming(draw: random.Random, problem: Problem, mistake: str) -> tuple[str, str]:
    """The program that is run, which is nothing for a guess, and what is answered."""
    exponent, first, bound = problem.facts["bounds"]
    if mistake == "guess":
        return "", _slip(draw, problem.facts["answer"])
    if mistake == "mistype a bound":
        bound = draw.choice([other for other in range(10, 100) if other not in (first, bound)])
    elif mistake == "take another exponent":
        exponent = draw.choice([other for other in EXPONENTS if other != exponent])
    code = f"print(sum(i**{exponent} for i in range({first}, {bound})))"
    printed = str(sum(i**exponent for i in range(first, bound)))
    return code, _slip(draw, printed) if mistake == "misread" else printed


def _buy(draw: random.Random, problem: Problem, mistake: str) -> list[str]:
    names = {key: product["name"] for key, product in problem.facts["products"].items()}
    ordered: dict[str, int] = problem.facts["order"]
    wish = sorted(ordered.items(), key=lambda line: problem.prompt.index(names[line[0]]))
    if mistake == "forget":
        wish.pop()
    elif mistake == "miscount":
        place = draw.randrange(len(wish))
        key, count = wish[place]
        wish[place] = key, draw.choice([other for other in COUNTS if other != count])
    replies = []
    for key, count in wish:
        replies += [
            call_text("search", words=names[key]),
            call_text("add_to_cart", key=key, count=count),
        ]
    if mistake == "mistake the key":
        place = draw.randrange(1, len(replies), 2)
        key, count = wish[place // 2]
        replies[place] = call_text("add_to_cart", key=_slip(draw, key), count=count)
    return [*replies, "Done." if mistake == "walk out" else call_text("checkout")]


def _slip(draw: random.Random, text: str) -> str:
    """The text with one digit replaced by another; no number begins with 0 that did not before."""
    place = draw.choice([i for i, letter in enumerate(text) if letter.isdigit()])
    digit = draw.choice([other for other in "123456789" if other != text[place]])
    return text[:place] + digit + text[place + 1 :]
