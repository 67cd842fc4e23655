"""The README of an exported policy. It explains how to load the policy in transformers and vLLM."""

import json
from pathlib import Path

from agentfly_core.config.experiment import Settings
from agentfly_core.models.known import VLLM_RANKS
from agentfly_core.store.artifact import Pointer

TEMPLATE = Path(__file__).with_suffix(".md.jinja")


def policy_page(
    reference: str,
    policy: Pointer,
    settings: Settings,
    rank: int | None,
    templated: bool,
    stop: list[int],
) -> str:
    """Return the README of an exported policy.

    - `reference`: the reference of the policy, such as `run:demo@7`
    - `settings`: the settings of the run
    - `rank`: the rank of the adapter, or None for a whole model
    - `templated`: whether the export includes the chat template that was used in training
    - `stop`: the ids of the end tokens
    """
    from jinja2 import Template  # imported here, because only this function needs it

    messages = [{"role": "user", "content": "The prompt of a problem."}]
    if system := settings.agent.system:
        messages.insert(0, {"role": "system", "content": system})
    shows_tools = templated and settings.template.settings.get("show_tools", True)
    tools = dict.fromkeys(tool.use for task in settings.each.values() for tool in task.tools)
    text: str = Template(TEMPLATE.read_text(), keep_trailing_newline=True).render(
        reference=reference,
        policy=policy,
        dtype=settings.dtype,
        max_tokens=settings.agent.max_tokens,
        template=settings.template.use,
        rank=rank,
        folder="base" if rank else ".",
        most=next(most for most in VLLM_RANKS if most >= (rank or 0)),
        templated=templated,
        tools=[*tools] if shows_tools else [],
        messages=json.dumps(messages, ensure_ascii=False),
        stop=stop,
    )
    return text
