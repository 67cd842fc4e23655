"""A policy and its optimizer inside a DeepSpeed engine: made, saved and loaded, for ZeRO stages 1 to 3.

What is saved are the float32 weights and the moments of AdamW, whole, in safetensors: the same bytes for the same
state, no pickle, and no trace of how many ranks there were.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deepspeed
import torch
import torch.distributed
from deepspeed.utils import (
    safe_get_full_fp32_param,
    safe_get_full_optimizer_state,
    safe_set_full_fp32_param,
    safe_set_full_optimizer_state,
)
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from agentfly_core import probe
from agentfly_core.algorithm import Critic
from agentfly_core.batch import RolloutBatch
from agentfly_core.config import Adapter, Update
from agentfly_core.learner import UpdateJob
from agentfly_core.learners.policy import load_policy

Engine = Any
POLICY = "model."  # where the policy's weights stand in the engine's module; the critic's begin with "critic."
MOMENTS = ("exp_avg", "exp_avg_sq")
TENSORS, STATE = "learner.safetensors", "learner.json"
TOKENIZER = ("tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab.*", "merges.txt", "chat_template*")


def fresh(job: UpdateJob, zero_stage: int, critic: Critic) -> Engine:
    """An engine around the policy of a job and a new critic, with an optimizer that has no history."""
    if zero_stage == 0:
        raise ValueError("Got ZeRO stage 0, which keeps no float32 weights beside bfloat16: use stage 1.")
    adapter = Adapter(**job.adapter) if job.adapter else None
    model = load_policy(job.policy, job.dtype, critic, job.base, adapter, job.seed)
    parts = [model.model, model.critic] if model.critic is not None else [model.model]
    engine, *_ = deepspeed.initialize(
        model=model,
        model_parameters=[{"params": [p for p in part.parameters() if p.requires_grad]} for part in parts],
        config=_settings(job.dtype, zero_stage),
    )
    _make_moments(engine)
    return engine


def set_hyper_parameters(engine: Engine, update: Update, critic_rate: float) -> None:
    """Take what the optimizer's next steps shall use; nothing of it comes from an earlier update or a saved state.

    A critic's own weights learn `critic_rate` times as fast.
    """
    for group, rate in zip(engine.optimizer.param_groups, (1.0, critic_rate), strict=False):
        group["lr"] = update.learning_rate * rate
        group["betas"] = update.betas
        group["weight_decay"] = update.weight_decay
    engine.optimizer.clip_grad = update.max_grad_norm


def require_known_tokens(engine: Engine, batch: RolloutBatch) -> None:
    """Raise ValueError for tokens that the policy does not have; on a GPU they would end the process."""
    known = engine.module.model.config.vocab_size
    if bool((batch.tokens >= known).any()):
        raise ValueError(
            f"The trajectories have the token {int(batch.tokens.max())}, but the policy knows only {known}: "
            "they were sampled from another model."
        )


def write_state(engine: Engine, label: str, folder: Path) -> None:
    """Write all that is needed to go on bit-identically; every rank must call it, the first one writes."""
    tensors: dict[str, Tensor] = {}
    for name, parameter in _parameters(engine):
        whole = {"weight": safe_get_full_fp32_param(parameter)}
        whole |= {moment: safe_get_full_optimizer_state(parameter, moment) for moment in MOMENTS}
        if torch.distributed.get_rank() == 0:
            tensors |= {f"{name}/{part}": tensor.cpu().clone() for part, tensor in whole.items()}
    if torch.distributed.get_rank() == 0:
        save_file(tensors, folder / TENSORS)
        (folder / STATE).write_text(json.dumps({"label": label, "optimizer_steps": _steps(engine)}))


def read_state(engine: Engine, label: str, folder: Path) -> None:
    """Put a saved state into a fresh engine around the policy that was saved with it.

    Raises FileNotFoundError when there is none, ValueError when it has another label or belongs to another policy.
    """
    state = json.loads((folder / STATE).read_text())
    if state["label"] != label:
        raise ValueError(f"{folder} holds the learner state {state['label']!r}, expected {label!r}.")
    with safe_open(folder / TENSORS, "pt") as tensors:
        for name, parameter in _parameters(engine):
            weight = tensors.get_tensor(f"{name}/weight")
            as_policy = safe_get_full_fp32_param(parameter).cpu()
            if name.startswith(POLICY) and not torch.equal(as_policy, weight.to(parameter.dtype).float()):
                raise ValueError(f"{folder} belongs to another policy: {name} differs from the policy's.")
            with deepspeed.zero.GatheredParameters([parameter], modifier_rank=0):
                parameter.data.copy_(weight)  # a critic's is not that of the policy's directory
            safe_set_full_fp32_param(parameter, weight)
            for moment in MOMENTS:
                safe_set_full_optimizer_state(parameter, tensors.get_tensor(f"{name}/{moment}"), moment)
    _set_steps(engine, state["optimizer_steps"])


def write_policy(engine: Engine, source: Path, folder: Path) -> None:
    """Write a Hugging Face or peft directory with the tokenizer of `source`, and the probe; every rank must call it."""
    weights = {
        name.removeprefix(POLICY): safe_get_full_fp32_param(p).to(p.dtype).cpu()
        for name, p in _parameters(engine)
        if name.startswith(POLICY)
    }
    logprobs = _probe(engine)
    if torch.distributed.get_rank() != 0:
        return
    model = engine.module.model
    model.save_pretrained(folder, state_dict=weights)
    for path in source.iterdir():
        if any(path.match(pattern) for pattern in TOKENIZER):
            shutil.copy(path, folder / path.name)
    probe.write(folder, model.config.vocab_size, logprobs)


def _probe(engine: Engine) -> list[float]:
    row = torch.tensor([probe.tokens(engine.module.model.config.vocab_size)], device=engine.device)
    with torch.no_grad():
        logprobs, _, _ = engine(row, torch.arange(probe.TOKENS, device=engine.device).unsqueeze(0) > 0, 1.0)
    return [float(value) for value in logprobs[0, 1:]]


def _settings(dtype: str, zero_stage: int) -> dict[str, Any]:
    return {
        "train_micro_batch_size_per_gpu": 1,
        "zero_optimization": {"stage": zero_stage, "overlap_comm": False, "reduce_bucket_size": 16_000_000},
        "bf16": {"enabled": dtype == "bfloat16", "check_grad_overflow": True},
        "data_types": {"grad_accum_dtype": "fp32"},
        "gradient_clipping": 1.0,
        "optimizer": {"type": "AdamW", "params": {"lr": 0.0, "weight_decay": 0.0, "torch_adam": True, "fused": True}},
    }


def _make_moments(engine: Engine) -> None:
    # AdamW makes its moments in its first step, too late to load them: one step of size 0 on a gradient of 0. Before it
    # one without DeepSpeed, which looks for all moments as soon as the first group of parameters has had its step.
    for part in (part for group in engine.basic_optimizer.param_groups for part in group["params"]):
        part.grad = torch.zeros_like(part)
    engine.basic_optimizer.step()
    row = torch.zeros(1, 2, dtype=torch.int64, device=engine.device)
    found = engine(row, torch.tensor([[False, True]], device=engine.device), 1.0)
    engine.set_gradient_accumulation_boundary(True)
    engine.backward(0.0 * sum(part.sum() for part in found), scale_wrt_gas=False)
    engine.step()
    if hasattr(engine.optimizer, "_hp_optimizer_states_linked"):
        # DeepSpeed 0.19 links all moments to their parameters after the step of the first group, when only its exist.
        engine.optimizer._hp_optimizer_states_linked = False
        engine.optimizer._lazy_init_hp_params_optimizer_state()
    _set_steps(engine, 0)


def _parameters(engine: Engine) -> Iterator[tuple[str, Any]]:
    return ((name, p) for name, p in engine.module.named_parameters() if p.requires_grad)


def _steps(engine: Engine) -> int:
    return int(next(iter(engine.basic_optimizer.state.values()))["step"])


def _set_steps(engine: Engine, steps: int) -> None:
    for moments in engine.basic_optimizer.state.values():
        moments["step"].fill_(steps)
