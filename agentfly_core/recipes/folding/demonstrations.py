"""Demonstrations that add up the entries of ledgers longer than the context window."""

import random
import re
from collections.abc import Sequence

from agentfly_core import Conversation, Message, Problem, call_text
from agentfly_core.datasets.players import Demonstrator, replying, slip

_BALANCE = re.compile(r"balance (\d+), (?:next page (\d+)|last page)")


def ledger(problems: Sequence[Problem], seed: int, spoilt: float = 0.3) -> Demonstrator:
    """Return a policy for the agent `Folding`, which summarises long contexts.

    The policy adds up the entries of a ledger with the tool `carry`, page by page. Each summary
    repeats the tool's last answer, which contains the sum so far. `spoilt` is the share of episodes
    with a mistake: the policy mistypes a sum, writes a wrong summary, stops early, or misreads the
    last sum.
    """
    return replying(seed, spoilt, _carry, ("mistype", "misremember", "stop early", "misread"))


def _carry(draw: random.Random, conversation: Conversation, mistake: str) -> str:
    question, pages = conversation.problem.prompt, conversation.problem.facts["pages"]
    later, _ = draw.choice(pages[1:])
    read = [message.content for message in conversation.messages]
    balances = [*_BALANCE.finditer("\n".join(read))]
    balance, page = balances[-1].groups() if balances else ("0", str(pages[0][0]))
    # a message that is neither the question nor a tool's answer asks for a summary
    if isinstance(conversation.messages[-1], Message) and not read[-1].startswith(question):
        if mistake == "misremember" and question in read:
            return balances[-1][0].replace(balance, slip(draw, balance), 1)
        return balances[-1][0]
    if not page:
        return slip(draw, balance) if mistake == "misread" else balance
    if mistake == "stop early" and page == str(later):
        return balance
    if mistake == "mistype" and page == str(later):
        balance = slip(draw, balance)
    return call_text("carry", page=int(page), balance=int(balance))
