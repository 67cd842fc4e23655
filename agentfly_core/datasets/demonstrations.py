"""Demonstrations for ready-made tools and agents. Some of them contain deliberate mistakes."""

import random
from collections.abc import Callable, Sequence
from functools import partial

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.datasets.players import Demonstrator, replying, slip
from agentfly_core.datasets.powers import EXPONENTS
from agentfly_core.records.messages import call_text
from agentfly_core.records.trajectory import Problem
from agentfly_core.tools.calculator import evaluate
from agentfly_core.tools.calculator import written as number

ToolStep = Callable[[random.Random, Problem, str], tuple[str, str]]
"""A function that solves a problem. It returns the argument for the tool and the final answer. The
argument is empty if the answer is a guess without a call. The last parameter of the function is the
name of a deliberate mistake, or empty.
"""
SUM_MISTAKES = ("guess", "mistype", "take another operation", "misread")
PROGRAM_MISTAKES = ("guess", "mistype a bound", "take another exponent", "misread")


def calculator(problems: Sequence[Problem], seed: int, spoilt: float = 0.3) -> Demonstrator:
    """Return a scripted policy that calls the calculator and answers with the result.

    The policy can play problems of `datasets.arithmetic`, and problems with an entry `expression`
    in `Problem.facts`. `spoilt` is the share of episodes with a mistake: a guess, a wrong digit in
    the expression, a wrong operation, or a wrong digit in the answer.
    """
    reply = partial(use_tool, calculation, partial(calling, "calculator", "expression"), answering)
    return replying(seed, spoilt, reply, SUM_MISTAKES)


def react(problems: Sequence[Problem], seed: int, spoilt: float = 0.3) -> Demonstrator:
    """Return a scripted policy that calls the calculator in the format of `agents.react`.

    The policy plays the same problems and makes the same mistakes as the policy `calculator`.
    `spoilt` is the share of episodes with a mistake.
    """
    ask = (
        "Thought: The calculator can work that out.\n"
        "Action: calculator\nAction Input: {}\nObservation:"
    )
    say = "Thought: I know the answer.\nFinal Answer: {}"
    reply = partial(use_tool, calculation, ask.format, say.format)
    return replying(seed, spoilt, reply, SUM_MISTAKES)


def python(problems: Sequence[Problem], seed: int, spoilt: float = 0.3) -> Demonstrator:
    """Return a scripted policy that runs a program with the tool `python`, and answers with its
    output.

    The policy can play problems of `datasets.powers`. `spoilt` is the share of episodes with a
    mistake: a guess, a wrong bound, a wrong exponent, or a wrong digit in the answer.
    """
    reply = partial(use_tool, programming, partial(calling, "python", "code"), answering)
    return replying(seed, spoilt, reply, PROGRAM_MISTAKES)


def code_block(problems: Sequence[Problem], seed: int, spoilt: float = 0.3) -> Demonstrator:
    """Return a scripted policy that writes its program in the format of `agents.code_block`.

    The policy plays the same problems and makes the same mistakes as the policy `python`.
    `spoilt` is the share of episodes with a mistake.
    """
    reply = partial(use_tool, programming, "```python\n{}\n```\n".format, str)
    return replying(seed, spoilt, reply, PROGRAM_MISTAKES)


def use_tool(
    work: ToolStep,
    ask: Callable[[str], str],
    say: Callable[[str], str],
    draw: random.Random,
    conversation: Conversation,
    mistake: str,
) -> str:
    """Return the reply of a scripted policy that has one tool.

    The reply calls the tool in the first turn, and gives the answer in the second turn. `work`
    solves the problem, and returns the argument of the call and the answer. If this argument is
    empty, the first reply already gives the answer. `ask` writes the reply with the call, and `say`
    writes the reply with the answer. `mistake` is the name of a deliberate mistake in the solution,
    or empty.
    """
    argument, answer = work(draw, conversation.problem, mistake)
    return ask(argument) if argument and conversation.turn == 0 else say(answer)


def calling(tool: str, argument: str, value: str) -> str:
    """Return a reply that calls a tool with one argument."""
    return call_text(tool, **{argument: value})


answering = partial(calling, "answer", "answer")


def calculation(draw: random.Random, problem: Problem, mistake: str) -> tuple[str, str]:
    """Return the expression and the answer for a problem of `datasets.arithmetic`.

    `mistake` is one of SUM_MISTAKES, such as "guess", or empty for a correct solution.
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

    `mistake` is one of PROGRAM_MISTAKES, such as "guess", or empty for a correct solution.
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
