"""Sample a reply in at most three spans: reasoning, tokens that end the reasoning, and visible
text.
"""

from collections.abc import Iterator
from dataclasses import replace

from agentfly_core.authoring.chat_template import ChatTemplate
from agentfly_core.inference.sampler import Request, SamplerSession
from agentfly_core.inference.templates.model import ModelTemplate
from agentfly_core.records.trajectory import Sampled
from agentfly_core.system.formats import hashing


async def sample_spans(
    session: SamplerSession, request: Request, template: ChatTemplate
) -> tuple[Sampled, ...]:
    """Sample a reply. Its reasoning becomes a separate span.

    A thinking budget is the maximum number of reasoning tokens. With a budget, a first request
    samples the reasoning. If the reasoning reaches the budget, tokens that end the reasoning are
    appended. These tokens are not trained. Then a second request samples the visible text. If the
    request's `max_tokens` leaves no room for visible text, the reply ends when the reasoning
    reaches the budget. Scripted policies and chat services reply in one request and ignore the
    budget.
    """
    if not isinstance(template, ModelTemplate):
        return (await session.sample(request),)
    budget, end, params = template.thinking_budget, template.thought_end, request.params
    within = not budget or params.max_tokens <= budget
    if within or not session.of(request.conversation.speaker).continues:
        return tuple(_divided(await session.sample(request), template))
    stops = (*params.stop_tokens, template.thought_close)
    limited = replace(params, max_tokens=budget, stop_tokens=stops)
    first = await session.sample(replace(request, params=limited))
    spans = [*_divided(first, template)]
    if first.finish == "length" and template.is_thinking(first.tokens):
        if params.max_tokens - budget <= len(end):
            return tuple(spans)
        # forced tokens have probability 1, and are not trained
        zeros = (0.0,) * len(end)
        entropies = zeros if params.entropies else ()
        spans.append(Sampled(end, zeros, first.policy_version, "length", entropies, trained=False))
    elif first.finish != "length" and first.tokens[-1:] != (template.thought_close,):
        return tuple(spans)
    own = tuple(token for span in spans for token in span.tokens)
    # with the same seed, the visible text would repeat the random draws of the reasoning
    seed = hashing.seed(request.conversation.seed, "rest")
    rest = Request(
        (*request.prompt, *own),
        replace(params, max_tokens=params.max_tokens - len(own)),
        replace(request.conversation, seed=seed),
    )
    return (*spans, await session.sample(rest))


def _divided(sampled: Sampled, template: ModelTemplate) -> Iterator[Sampled]:
    """Yield the reasoning and the visible text of a reply as two spans.

    An empty span is omitted if the other span contains tokens. For an empty reply, two empty spans
    are yielded.
    """
    size, whole = template.reasoning_tokens(sampled.tokens), len(sampled.tokens)
    for begin, end, trained in ((0, size, template.train_reasoning), (size, whole, True)):
        if begin < end or not whole:
            yield sampled.part(begin, end, trained)
