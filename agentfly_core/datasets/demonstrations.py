"""Demonstrations for the calculator, and functions for demonstrations of other tools. Some of the
demonstrations contain deliberate mistakes.
"""

import random
from collections.abc import Callable, Sequence
from functools import partial

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.datasets.players import Demonstrator
from agentfly_core.datasets.powers import EXPONENTS
from agentfly_core.records.messages import call_text
from agentfly_core.records.trajectory import Problem
from agentfly_core.system.formats import hashing
from agentfly_core.tools.calculator import evaluate
from agentfly_core.tools.calculator import written as number

ToolStep = Callable[[random.Random, Problem, str], tuple[str, str]]
"""A function that solves a problem. It returns the argument for the tool and the final answer. The
argument is empty if the answer is a guess without a call. The last parameter of the function is the
name of a deliberate mistake, or empty.
"""
ReplyWriter = Callable[[random.Random, Conversation, str], str]
"""A function that returns the next reply. Its last parameter is the name of a deliberate mistake,
or empty. In each turn of an episode, the random generator starts from the same seed.
"""
SUM_MISTAKES = ("guess", "mistype", "take another operation", "misread")
PROGRAM_MISTAKES = ("guess", "mistype a bound", "take another exponent", "misread")


def calculator(problems: Sequence[Problem], seed: int, spoilt: float = 0.3) -> Demonstrator:
    """Return a scripted policy that calls the calculator and answers with the result.

    It can play problems of `datasets.arithmetic`, and problems with an entry `expression` in
    `Problem.facts`. A share `spoilt` of the episodes contains a mistake: a guess, a wrong digit in
    the expression, a wrong operation, or a wrong digit in the answer.
    """
    reply = partial(use_tool, calculation, partial(calling, "calculator", "expression"), answering)
    return replying(seed, spoilt, reply, SUM_MISTAKES)


def replying(seed: int, spoilt: float, reply: ReplyWriter, mistakes: Sequence[str]) -> Demonstrator:
    """Return a scripted policy that replies with the function `reply`.

    A share `spoilt` of the episodes contains one of the mistakes in `mistakes`.
    """

    async def policy(conversation: Conversation) -> str:
        problem = conversation.problem
        # seeded again in each turn, to give all turns of an episode the same mistake
        draw = random.Random(hashing.seed(seed, "demonstration", problem.id, conversation.chain))
        mistake = draw.choice(mistakes) if draw.random() < spoilt else ""
        return reply(draw, conversation, mistake)

    return policy


def use_tool(
    work: ToolStep,
    ask: Callable[[str], str],
    say: Callable[[str], str],
    draw: random.Random,
    conversation: Conversation,
    mistake: str,
) -> str:
    """Return the reply of a scripted policy with one tool.

    The reply calls the tool in the first turn, and gives the answer in the second turn. `work`
    solves the problem, `ask` writes a call, and `say` writes the answer.
    """
    argument, answer = work(draw, conversation.problem, mistake)
    return ask(argument) if argument and conversation.turn == 0 else say(answer)


def calling(tool: str, argument: str, value: str) -> str:
    """Return a reply that calls a tool with one argument."""
    return call_text(tool, **{argument: value})


answering = partial(calling, "answer", "answer")


def calculation(draw: random.Random, problem: Problem, mistake: str) -> tuple[str, str]:
    """Return the expression and the answer for a problem of `datasets.arithmetic`.

    `mistake` is one of SUM_MISTAKES, or empty for a correct solution.
    """
    question = problem.prompt.removeprefix("What is ").removesuffix("?")
    expression = str(problem.facts.get("expression", question))
    if mistake == "guess":
        return "", slip(draw, number(evaluate(expression)))
    if mistake == "mistype":
        expression = slip(draw, expression)
    elif mistake == "take another operation":
        (sign,) = set(expression) & set("+-*")
        other = draw.choice([other for other in "+-*" if other != sign])
        expression = expression.replace(sign, other)
    result = number(evaluate(expression))
    return expression, slip(draw, result) if mistake == "misread" else result


def programming(draw: random.Random, problem: Problem, mistake: str) -> tuple[str, str]:
    """Return a Python program and the answer for a problem of `datasets.powers`.

    `mistake` is one of PROGRAM_MISTAKES, or empty for a correct solution.
    """
    exponent, first, bound = problem.facts["bounds"]
    if mistake == "guess":
        return "", slip(draw, problem.facts["answer"])
    if mistake == "mistype a bound":
        bound = draw.choice([other for other in range(10, 100) if other not in (first, bound)])
    elif mistake == "take another exponent":
        exponent = draw.choice([other for other in EXPONENTS if other != exponent])
    code = f"print(sum(i**{exponent} for i in range({first}, {bound})))"
    printed = str(sum(i**exponent for i in range(first, bound)))
    return code, slip(draw, printed) if mistake == "misread" else printed


def slip(draw: random.Random, text: str) -> str:
    """Replace a random digit of a text by a different digit from 1 to 9."""
    place = draw.choice([i for i, letter in enumerate(text) if letter.isdigit()])
    # not 0: a leading zero would make the number invalid
    digit = draw.choice([other for other in "123456789" if other != text[place]])
    return text[:place] + digit + text[place + 1 :]
