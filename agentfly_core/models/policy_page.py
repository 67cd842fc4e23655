"""The README of an exported policy. It explains how to load the policy in transformers and vLLM."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agentfly_core.config.parts import AgentPart, TemplatePart
from agentfly_core.models.known import VLLM_RANKS
from agentfly_core.store.artifact import Pointer

TEMPLATE = Path(__file__).with_suffix(".md.jinja")


@dataclass(frozen=True, kw_only=True)
class PolicyPage:
    """The contents of the README of an exported policy.

    - `reference`: the reference of the policy, such as `run:demo@7`
    - `tools`: the import paths of the tools
    - `rank`: the rank of the adapter, or None for a whole model
    - `templated`: whether the export includes the chat template that was used in training
    - `stop`: the ids of the end tokens
    """

    reference: str
    policy: Pointer
    agent: AgentPart
    template: TemplatePart
    tools: Sequence[str]
    dtype: str
    rank: int | None
    templated: bool
    stop: Sequence[int]

    def write(self, file: Path) -> None:
        """Write the README to `file`."""
        from jinja2 import Template  # imported here, because only this function needs it

        shows_tools = self.templated and self.template.settings.get("show_tools", True)
        system = self.agent.system
        messages = [{"role": "system", "content": system}] if system else []
        messages.append({"role": "user", "content": "The prompt of a problem."})
        text: str = Template(TEMPLATE.read_text(), keep_trailing_newline=True).render(
            reference=self.reference,
            policy=self.policy,
            dtype=self.dtype,
            max_tokens=self.agent.max_tokens,
            template=self.template.use,
            rank=self.rank,
            folder="base" if self.rank else ".",
            most=next(most for most in VLLM_RANKS if most >= (self.rank or 0)),
            templated=self.templated,
            tools=self.tools if shows_tools else [],
            messages=json.dumps(messages, ensure_ascii=False),
            stop=list(self.stop),
        )
        file.write_text(text, encoding="utf-8")
