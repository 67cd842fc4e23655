"""The README of an exported policy: how to load it in transformers and vLLM."""

import json
from collections.abc import Sequence
from pathlib import Path

from agentfly_core.config.parts import AgentPart, TemplatePart
from agentfly_core.models.known import VLLM_RANKS
from agentfly_core.store.artifact import Pointer

TEMPLATE = Path(__file__).with_suffix(".md.jinja")


def page(
    reference: str,
    policy: Pointer,
    agent: AgentPart,
    template: TemplatePart,
    tools: Sequence[str],
    dtype: str,
    rank: int | None,
    templated: bool,
    stop: Sequence[int],
) -> str:
    """Write the page of a whole model, or of an adapter with this `rank`.

    `tools` are import paths, and `stop` the ids of the end tokens. If `templated`, the export has
    the chat template of training.
    """
    from jinja2 import Template  # imported here, because only this function needs it

    shows_tools = templated and template.settings.get("show_tools", True)
    messages = [{"role": "system", "content": agent.system}] if agent.system else []
    messages.append({"role": "user", "content": "The prompt of a problem."})
    text: str = Template(TEMPLATE.read_text(), keep_trailing_newline=True).render(
        reference=reference,
        policy=policy,
        dtype=dtype,
        max_tokens=agent.max_tokens,
        template=template.use,
        rank=rank,
        folder="base" if rank else ".",
        most=next(most for most in VLLM_RANKS if most >= (rank or 0)),
        templated=templated,
        tools=tools if shows_tools else [],
        messages=json.dumps(messages, ensure_ascii=False),
        stop=list(stop),
    )
    return text
