"""Functions for scripted policies that play episodes and sometimes make deliberate mistakes."""

import random
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.records.trajectory import Message, Observation, ToolCall
from agentfly_core.system.formats import hashing

Demonstrator = Callable[[Conversation], Awaitable[str]]
ReplyWriter = Callable[[random.Random, Conversation, str], str]
"""A function of a random generator, a conversation and the name of a deliberate mistake (or ""). It
returns the next reply. In each turn of an episode, the random generator starts from the same seed.
"""


def replying(seed: int, spoilt: float, reply: ReplyWriter, mistakes: Sequence[str]) -> Demonstrator:
    """Return a scripted policy that replies with the function `reply`.

    `spoilt` is the share of episodes that contain one of the mistakes in `mistakes`.
    """

    async def policy(conversation: Conversation) -> str:
        problem = conversation.problem
        # seeded again in each turn, to give all turns of an episode the same mistake
        draw = random.Random(hashing.seed(seed, "demonstration", problem.id, conversation.chain))
        wrong = draw.choice(mistakes) if draw.random() < spoilt else ""
        return reply(draw, conversation, wrong)

    return policy


def mistake(conversation: Conversation, seed: int, spoilt: float, kinds: Sequence[str]) -> str:
    """Decide whether a scripted policy makes a deliberate mistake in the episode of `conversation`.

    Return the name of the mistake, or "" if the policy makes no mistake. The result is the same in
    each turn of an episode. `spoilt` is the share of episodes with a mistake, and `kinds` has the
    names of the mistakes.
    """
    draw = random.Random(hashing.seed(seed, "mistake", conversation.problem.id, conversation.chain))
    return draw.choice(kinds) if draw.random() < spoilt else ""


def another(draw: random.Random, right: str, like: Sequence[str]) -> str:
    """Return a wrong answer that has the same form as the answer `right`.

    If `right` is a number, the wrong answer is a number with the same number of digits. Otherwise
    the wrong answer is a random entry of `like` that differs from `right`.
    """
    if not right.isdigit():
        return draw.choice([other for other in like if other != right])
    numbers = range(10 ** (len(right) - 1), 10 ** len(right))
    return str(draw.choice([number for number in numbers if str(number) != right]))


def slip(draw: random.Random, text: str) -> str:
    """Replace a random digit of a text by a different digit from 1 to 9."""
    place = draw.choice([i for i, letter in enumerate(text) if letter.isdigit()])
    # not 0: a leading zero would make the number invalid
    digit = draw.choice([other for other in "123456789" if other != text[place]])
    return text[:place] + digit + text[place + 1 :]


def called(conversation: Conversation) -> list[ToolCall]:
    messages = [message for message in conversation.messages if isinstance(message, Message)]
    return [call for message in messages for call in message.calls if isinstance(call, ToolCall)]


def observed(conversation: Conversation) -> list[str]:
    return [item.content for item in conversation.messages if isinstance(item, Observation)]


def filled(prompt: str, texts: Mapping[str, str], dataset: str) -> tuple[str, dict[str, str]]:
    """Return the name of the template from which a prompt was made, and the values of the
    template's fields: `("rename", {"old": "amber-mills", ...})`.

    `texts` maps the names of templates to their texts. Raises ValueError if none of them matches
    the prompt.
    """
    for kind, text in texts.items():
        pattern = re.sub(r"\\{(\w+)\\}", r"(?P<\1>[\\w -]+)", re.escape(text))
        if match := re.fullmatch(pattern, prompt):
            return kind, match.groupdict()
    raise ValueError(f"Got {prompt!r}, expected a prompt of {dataset}.")
