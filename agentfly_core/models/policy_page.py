"""The README of an exported policy: how to load it in transformers and vLLM."""

from __future__ import annotations

import json
from collections.abc import Sequence

from agentfly_core.config.experiment import Settings
from agentfly_core.models.known import VLLM_RANKS
from agentfly_core.store.artifact import Pointer

_PAGE = """\
# {reference}

{about} It was made by AgentFly as `{uri}`, digest `{digest}`. {template}
Run what follows in this directory.

## transformers

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(".")
model = AutoModelForCausalLM.from_pretrained("{folder}", dtype="{dtype}")
{adapt}messages = {messages}
read = tokenizer.apply_chat_template(
    messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
)
replies = model.generate(**read, max_new_tokens={max_tokens}, do_sample=True, top_k=0)
print(tokenizer.decode(replies[0, read["input_ids"].shape[1] :]))
```

## vLLM

```python
from vllm import LLM, SamplingParams
from vllm.lora.request import LoRARequest

llm = LLM("{folder}", dtype="{dtype}", generation_config="vllm"{options})
messages = {messages}
sampling = SamplingParams(temperature=1.0, max_tokens={max_tokens}, stop_token_ids={stop})
print(llm.chat(messages, sampling{request})[0].outputs[0].text)
```

Served for programs that speak OpenAI's interface:
`vllm serve {folder} --dtype {dtype} --generation-config vllm{flags}`
"""
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
