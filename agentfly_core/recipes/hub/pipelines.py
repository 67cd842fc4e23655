"""Pipelines of participants: in sequence, by a condition, by a key, in a loop, and at once.

A step is a participant, or any function from a message to an awaitable message, such as
`partial(sequential, [north, east])`, so pipelines can be nested.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from agentfly_core.recipes.hub.participants import HubMessage, finished

MaybeMessage = HubMessage | None
HubStep = Callable[[MaybeMessage], Awaitable[HubMessage]]
HubKey = Callable[[MaybeMessage], str]
HubCondition = Callable[[MaybeMessage], bool]


async def sequential(steps: Sequence[HubStep], message: MaybeMessage = None) -> HubMessage:
    """Each step gets the message of the step before; returns the last one's."""
    reply = await steps[0](message)
    for step in steps[1:]:
        reply = await step(reply)
    return reply


async def if_else(
    condition: HubCondition, then: HubStep, otherwise: HubStep, message: MaybeMessage = None
) -> HubMessage:
    """The message of one of two steps."""
    return await (then if condition(message) else otherwise)(message)


async def switch(
    key: HubKey, cases: Mapping[str, HubStep], default: HubStep, message: MaybeMessage = None
) -> HubMessage:
    """The message of the step of a key."""
    return await cases.get(key(message), default)(message)


async def loop(
    step: HubStep, ends: HubCondition, most: int, message: MaybeMessage = None
) -> HubMessage:
    """Repeat a step with its own last message until `ends`, at least once and at most `most` times;
    returns the last message.
    """
    reply = await step(message)
    while most > 1 and not ends(reply):
        reply, most = await step(reply), most - 1
    return reply


async def fan_out(steps: Sequence[HubStep], message: MaybeMessage = None) -> Sequence[HubMessage]:
    """The messages of all steps, which work at the same time; none of them must have participants
    in the audience of another one.
    """
    return await finished(step(message) for step in steps)
