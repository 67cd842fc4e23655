"""The README of an exported policy: how to load it in transformers and vLLM."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from agentfly_core.config.parts import AgentPart, Part
from agentfly_core.models.known import VLLM_RANKS
from agentfly_core.store.artifact import Pointer

_PAGE = """\
# {reference}

{about} It was made by AgentFly as `{uri}`, digest `{digest}`.

{template} Run what follows in this directory.

## transformers

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(".")
{model}
messages = {messages}
read = tokenizer.apply_chat_template(
    messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
)
replies = model.generate(**read, max_new_tokens={max_tokens}, do_sample=True, top_k=0)
print(tokenizer.decode(replies[0, read["input_ids"].shape[1] :]))
```

## vLLM

```python
from vllm import LLM, SamplingParams
{llm}
messages = {messages}
sampling = SamplingParams(temperature=1.0, max_tokens={max_tokens}, stop_token_ids={stop})
print(llm.chat(messages, sampling{request})[0].outputs[0].text)
```

Served for programs that speak OpenAI's interface: `{serve}`
"""
_PROMPT = {"role": "user", "content": "The prompt of a problem."}
_WHOLE = {
    "about": "A whole model.",
    "model": 'model = AutoModelForCausalLM.from_pretrained(".", dtype="{dtype}")',
    "llm": '\nllm = LLM(".", dtype="{dtype}", generation_config="vllm")',
    "request": "",
    "serve": "vllm serve . --dtype {dtype} --generation-config vllm",
}
_ADAPTER = {
    "about": "An adapter (LoRA) of rank {rank}, in this directory, on the model in `base`.",
    "model": 'model = AutoModelForCausalLM.from_pretrained("base", dtype="{dtype}")\n'
    'model.load_adapter(".")',
    "llm": "from vllm.lora.request import LoRARequest\n\n"
    'llm = LLM("base", dtype="{dtype}", enable_lora=True, max_lora_rank={most},\n'
    '          generation_config="vllm")',
    "request": ', lora_request=LoRARequest("policy", 1, ".")',
    "serve": "vllm serve base --dtype {dtype} --generation-config vllm --enable-lora "
    "--max-lora-rank {most} --lora-modules policy=.",
}
_TRAINED = (
    "`chat_template.jinja` renders conversations as the policy read them in training. {tools}"
)
_LISTED = (
    "Its tools were listed in the system message: give them as `tools`, each "
    '`{"type": "function", "function": {"name": ..., "description": ..., "parameters": ...}}`, in '
    "this order: TOOLS."
)
_OTHER = (
    "**Its chat template is not the one that it was trained with**: `USE` has no `jinja`, a text "
    "for transformers. Write prompts with that class instead."
)


@dataclass(frozen=True, slots=True)
class EpisodeFormat:
    """Format of training episodes; `tools` are import paths."""

    agent: AgentPart
    template: Part
    tools: Sequence[str]
    dtype: str


def page(
    reference: str,
    policy: Pointer,
    episodes: EpisodeFormat,
    rank: int | None,
    templated: bool,
    stop: Sequence[int],
) -> str:
    """The page of a whole model, or of an adapter of this `rank`, with end tokens `stop`.

    `templated`: it has the chat template of training.
    """
    agent = episodes.agent
    most = next(limit for limit in VLLM_RANKS if limit >= (rank or 0))
    parts = _WHOLE if rank is None else _ADAPTER
    sizes = {"dtype": episodes.dtype, "rank": rank, "most": most}
    sections = {name: text.format(**sizes) for name, text in parts.items()}
    system = [{"role": "system", "content": agent.system}] if agent.system else []
    tools = ""
    named = dict.fromkeys(episodes.tools)
    if named and episodes.template.settings.get("show_tools", True):
        tools = _LISTED.replace("TOOLS", ", ".join(f"`{use}`" for use in named))
    elif named:
        tools = "It was shown no list of tools, and needs none."
    template = _TRAINED.format(tools=tools)
    return _PAGE.format(
        **sections,
        reference=reference,
        uri=policy.uri,
        digest=policy.digest[:12],
        template=template if templated else _OTHER.replace("USE", episodes.template.use),
        messages=json.dumps([*system, _PROMPT], ensure_ascii=False),
        max_tokens=agent.max_tokens,
        stop=list(stop),
    )
