"""Demonstrations of purchases in the shop."""

import random
from collections.abc import Sequence

from agentfly_core import Conversation, Problem, call_text
from agentfly_core.datasets.players import Demonstrator, replying, slip
from agentfly_core.recipes.shop.dataset import COUNTS


def shop(problems: Sequence[Problem], seed: int, spoilt: float = 0.3) -> Demonstrator:
    """Return a policy that searches each product, adds it to the cart, and then checks out.

    In a share `spoilt` of the episodes, the policy makes a mistake: it forgets a product of the
    shopping list, takes a wrong number of pieces, mistypes a product's key, or does not check out.
    """
    return replying(seed, spoilt, _buy, ("forget", "miscount", "mistake the key", "walk out"))


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
        replies[place] = call_text("add_to_cart", key=slip(draw, key), count=count)
    replies.append("Done." if mistake == "walk out" else call_text("checkout"))
    return replies[conversation.turn]
