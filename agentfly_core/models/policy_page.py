"""The README of an exported policy: how to load it in transformers and vLLM."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from agentfly_core.config.experiment import Settings
from agentfly_core.models.known import VLLM_RANKS
from agentfly_core.store.artifact import Pointer

_PAGE = Path(__file__).with_suffix(".md").read_text()
_WHOLE = {"about": "A whole model.", "folder": ".", "adapt": ""}
_WHOLE |= {"options": "", "request": "", "flags": ""}
_ADAPTER = {
    "about": "An adapter (LoRA) of rank {rank}, in this directory, on the model in `base`.",
    "folder": "base",
    "adapt": 'model.load_adapter(".")\n',
    "options": ", enable_lora=True, max_lora_rank={most}",
    "request": ', lora_request=LoRARequest("policy", 1, ".")',
    "flags": " --enable-lora --max-lora-rank {most} --lora-modules policy=.",
}
_TRAINED = "`chat_template.jinja` renders conversations as the policy read them in training."
_OTHER = (
    "**Its chat template is not the one that it was trained with**: `{use}` has no `jinja`, a text "
    "for transformers. Write prompts with that class instead."
)


def page(
    reference: str,
    policy: Pointer,
    settings: Settings,
    rank: int | None,
    templated: bool,
    stop: Sequence[int],
) -> str:
    """The page of a whole model, or of an adapter of this `rank`, with end tokens `stop`.

    `templated`: it has the chat template of training.
    """
    sizes = {"rank": rank, "most": next(most for most in VLLM_RANKS if most >= (rank or 0))}
    parts = {k: v.format(**sizes) for k, v in (_ADAPTER if rank else _WHOLE).items()}
    template = _TRAINED if templated else _OTHER.format(use=settings.template.use)
    tools = dict.fromkeys(tool.use for task in settings.each.values() for tool in task.tools)
    if templated and tools and settings.template.settings.get("show_tools", True):
        named = ", ".join(f"`{use}`" for use in tools)
        template += f" Give it the schemas of its tools as `tools`, in this order: {named}."
    system = settings.agent.system
    messages = [{"role": "system", "content": system}] if system else []
    return _PAGE.format(
        **parts,
        reference=reference,
        uri=policy.uri,
        digest=policy.digest[:12],
        template=template,
        dtype=settings.dtype,
        messages=json.dumps(
            [*messages, {"role": "user", "content": "The prompt of a problem."}], ensure_ascii=False
        ),
        max_tokens=settings.agent.max_tokens,
        stop=list(stop),
    )
