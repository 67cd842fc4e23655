"""Pipelines run agents one after another, in a loop or concurrently, or select one agent by a
condition or a key. The agents are the participants of a hub, i.e. a group with common messages.

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
    """Run steps in order.

    The first step gets `message`, and each later step gets the message of the step before. Returns
    the message of the last step.
    """
    reply = await steps[0](message)
    for step in steps[1:]:
        reply = await step(reply)
    return reply


async def if_else(
    condition: HubCondition, then: HubStep, otherwise: HubStep, message: MaybeMessage = None
) -> HubMessage:
    """Run `then` if the condition is true for the message, else `otherwise`.

    Returns the message of the step that was run.
    """
    return await (then if condition(message) else otherwise)(message)


async def switch(
    key: HubKey, cases: Mapping[str, HubStep], default: HubStep, message: MaybeMessage = None
) -> HubMessage:
    """Compute the key of the message, and run the step of `cases` that has this key.

    Without such a step, `default` is run. Returns the message of the step that was run.
    """
    return await cases.get(key(message), default)(message)


async def loop(
    step: HubStep, ends: HubCondition, most: int, message: MaybeMessage = None
) -> HubMessage:
    """Repeat a step until `ends` is true for the step's message, at most `most` times.

    The step is run at least once. The first run gets `message`, and each later run gets the message
    of the run before. Returns the message of the last run.
    """
    reply = await step(message)
    while most > 1 and not ends(reply):
        reply, most = await step(reply), most - 1
    return reply


async def fan_out(steps: Sequence[HubStep], message: MaybeMessage = None) -> Sequence[HubMessage]:
    """Run steps at the same time with the same message. Return the message of each step.

    A participant (agent) of one step must not read replies of another step's participants.
    """
    return await finished(step(message) for step in steps)
