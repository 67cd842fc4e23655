"""Demonstrations of tools before reinforcement learning, with a share of deliberate mistakes."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from functools import partial

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.datasets.players import Demonstrator
from agentfly_core.datasets.powers import EXPONENTS
from agentfly_core.datasets.shop import COUNTS
from agentfly_core.datasets.two_steps import SIGNS
from agentfly_core.records.messages import call_text
from agentfly_core.records.trajectory import Message, Observation, Problem
from agentfly_core.system.formats import hashing
from agentfly_core.tools.calculator import evaluate
from agentfly_core.tools.calculator import written as number

ToolStep = Callable[[random.Random, Problem, str], tuple[str, str]]
"""The tool's argument, "" for a guess, and the answer, with a mistake of this name or ""."""
ReplyWriter = Callable[[random.Random, Conversation, str], str]
"""The next reply, with a mistake of this name or ""; it draws the same in each turn."""
SUM_MISTAKES = ("guess", "mistype", "take another operation", "misread")
PROGRAM_MISTAKES = ("guess", "mistype a bound", "take another exponent", "misread")
_BALANCE = re.compile(r"balance (\d+), (?:next page (\d+)|last page)")


def calculator(problems: Sequence[Problem], seed: int, spoilt: float = 0.3) -> Demonstrator:
    """Call the calculator, then answer with the result.

    For `datasets.arithmetic` and problems with the fact `expression`. A share `spoilt` guesses,
    mistypes the sum, uses another operation or misreads the result.
    """
    reply = partial(_use_tool, _calculation, partial(_call, "calculator", "expression"), _answer)
    return _replying(seed, spoilt, reply, SUM_MISTAKES)


def react(problems: Sequence[Problem], seed: int, spoilt: float = 0.3) -> Demonstrator:
    """`calculator` in the form of `agents.react`."""
    ask = (
        "Thought: The calculator can work that out.\n"
        "Action: calculator\nAction Input: {}\nObservation:"
    )
    say = "Thought: I know the answer.\nFinal Answer: {}"
    reply = partial(_use_tool, _calculation, ask.format, say.format)
    return _replying(seed, spoilt, reply, SUM_MISTAKES)


def python(problems: Sequence[Problem], seed: int, spoilt: float = 0.3) -> Demonstrator:
    """For `datasets.powers`: run a program, then answer with its output.

    A share `spoilt` guesses, mistypes a bound, uses another exponent or misreads the output.
    """
    reply = partial(_use_tool, _programming, partial(_call, "python", "code"), _answer)
    return _replying(seed, spoilt, reply, PROGRAM_MISTAKES)


def code_block(problems: Sequence[Problem], seed: int, spoilt: float = 0.3) -> Demonstrator:
    """`python` in the form of `agents.code_block`."""
    reply = partial(_use_tool, _programming, "```python\n{}\n```\n".format, str)
    return _replying(seed, spoilt, reply, PROGRAM_MISTAKES)


def shop(problems: Sequence[Problem], seed: int, spoilt: float = 0.3) -> Demonstrator:
    """For `datasets.shop`: search each product, add it to the cart, then check out.

    A share `spoilt` forgets a line, takes a wrong number or key, or never pays.
    """
    return _replying(seed, spoilt, _buy, ("forget", "miscount", "mistake the key", "walk out"))


def ledger(problems: Sequence[Problem], seed: int, spoilt: float = 0.3) -> Demonstrator:
    """For `datasets.ledgers` and `agents.folding`: carry the balance from page to page.

    A share `spoilt` mistypes a balance, summarises it wrongly, stops early or misreads the last
    one.
    """
    return _replying(seed, spoilt, _carry, ("mistype", "misremember", "stop early", "misread"))


def planner_executor(problems: Sequence[Problem], seed: int, spoilt: float = 0.3) -> Demonstrator:
    """For `datasets.two_steps` and `agents.planner_executor`: the executor calculates each step.

    In a share `spoilt` the planner mistypes a step, stops early or misreads the last result, or the
    executor uses another operation or misreports a result.
    """
    mistakes = ("mistype", "stop early", "misread", "take another operation", "misreport")
    return _replying(seed, spoilt, _cooperate, mistakes)


def _replying(
    seed: int, spoilt: float, reply: ReplyWriter, mistakes: Sequence[str]
) -> Demonstrator:
    async def policy(conversation: Conversation) -> str:
        problem = conversation.problem
        draw = random.Random(hashing.seed(seed, "demonstration", problem.id, conversation.chain))
        mistake = draw.choice(mistakes) if draw.random() < spoilt else ""
        return reply(draw, conversation, mistake)

    return policy


def _use_tool(
    work: ToolStep,
    ask: Callable[[str], str],
    say: Callable[[str], str],
    draw: random.Random,
    conversation: Conversation,
    mistake: str,
) -> str:
    argument, answer = work(draw, conversation.problem, mistake)
    return ask(argument) if argument and conversation.turn == 0 else say(answer)


def _call(tool: str, argument: str, value: str) -> str:
    return call_text(tool, **{argument: value})


_answer = partial(_call, "answer", "answer")


def _calculation(draw: random.Random, problem: Problem, mistake: str) -> tuple[str, str]:
    question = problem.prompt.removeprefix("What is ").removesuffix("?")
    expression = str(problem.facts.get("expression", question))
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


def _programming(draw: random.Random, problem: Problem, mistake: str) -> tuple[str, str]:
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


def _buy(draw: random.Random, conversation: Conversation, mistake: str) -> str:
    problem = conversation.problem
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
    replies.append("Done." if mistake == "walk out" else call_text("checkout"))
    return replies[conversation.turn]


def _carry(draw: random.Random, conversation: Conversation, mistake: str) -> str:
    question, pages = conversation.problem.prompt, conversation.problem.facts["pages"]
    later, _ = draw.choice(pages[1:])
    read = [message.content for message in conversation.messages]
    balances = [*_BALANCE.finditer("\n".join(read))]
    balance, page = balances[-1].groups() if balances else ("0", str(pages[0][0]))
    if isinstance(conversation.messages[-1], Message) and not read[-1].startswith(question):
        if mistake == "misremember" and question in read:
            return balances[-1][0].replace(balance, _slip(draw, balance), 1)
        return balances[-1][0]
    if not page:
        return _slip(draw, balance) if mistake == "misread" else balance
    if mistake == "stop early" and page == str(later):
        return balance
    if mistake == "mistype" and page == str(later):
        balance = _slip(draw, balance)
    return call_text("carry", page=int(page), balance=int(balance))


def _cooperate(draw: random.Random, conversation: Conversation, mistake: str) -> str:
    messages = (one for one in conversation.messages if isinstance(one, Message))
    heard = [one.content for one in messages if one.role == "user"]
    if conversation.speaker == "planner":
        return _plan(draw, conversation.problem, mistake, heard)
    return _carry_out(draw, conversation, mistake, heard[0])


def _plan(draw: random.Random, problem: Problem, mistake: str, heard: Sequence[str]) -> str:
    """Reply of the planner to the problem and the results so far."""
    first, then = problem.facts["steps"]
    place, done, result = draw.randrange(2), len(heard) - 1, heard[-1]
    if done == 2 or (done and mistake == "stop early"):
        return f"Answer: {_slip(draw, result) if mistake == 'misread' else result}"
    step: str = f"{result} {then}" if done else first
    return _slip(draw, step) if mistake == "mistype" and done == place else step


def _carry_out(draw: random.Random, conversation: Conversation, mistake: str, step: str) -> str:
    last, first = conversation.messages[-1], conversation.problem.facts["steps"][0]
    wrong = mistake if draw.randrange(2) == int(step != first) else ""
    if isinstance(last, Observation):
        return _slip(draw, last.content) if wrong == "misreport" else last.content
    left, word, right = step.split()
    if wrong == "take another operation":
        word = draw.choice([other for other in SIGNS if other != word])
    return call_text("calculator", expression=f"{left}{SIGNS[word]}{right}")


def _slip(draw: random.Random, text: str) -> str:
    """The text with one digit replaced by another one above 0."""
    place = draw.choice([i for i, letter in enumerate(text) if letter.isdigit()])
    digit = draw.choice([other for other in "123456789" if other != text[place]])
    return text[:place] + digit + text[place + 1 :]
