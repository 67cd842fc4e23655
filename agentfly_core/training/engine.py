"""A policy and its optimizer in a DeepSpeed engine, for the ZeRO stages 0 to 3.

A saved state has the whole float32 weights and the moments of AdamW in a safetensors file. Its
bytes do not depend on the number of ranks.
"""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from pathlib import Path

import deepspeed
import torch
import torch.distributed
from deepspeed import DeepSpeedEngine
from deepspeed.runtime.bf16_optimizer import BF16_Optimizer
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from agentfly_core.config.experiment import Update
from agentfly_core.models import probe, sharded_save
from agentfly_core.rl.interface import Critic
from agentfly_core.system.formats.json_value import JSON
from agentfly_core.training import distributed
from agentfly_core.training.distributed import MOMENTS
from agentfly_core.training.job import UpdateJob
from agentfly_core.training.policy import load_policy, recompute_activations

POLICY = "model."
"""The prefix of the names of the policy's weights. The engine may also contain a critic."""
TENSORS, STATE = "learner.safetensors", "learner.json"
TOKENIZER = (
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.*",
    "merges.txt",
    "chat_template*",
)


@dataclass(frozen=True)
class Memory:
    """Settings that save memory: `Memory(zero_stage=2, offload="optimizer", checkpointing=False)`.

    ZeRO (arXiv 1910.02054) divides values among the ranks: at stage 1 the optimizer state, at stage
    2 also the gradients, and at stage 3 also the weights. `offload="optimizer"` keeps the optimizer
    state in CPU memory, and `offload="all"` also the weights. With `checkpointing`, activations are
    recomputed in the backward pass.
    """

    zero_stage: int
    offload: str
    checkpointing: bool

    def config(self, dtype: str) -> Mapping[str, JSON]:
        """Return the configuration of DeepSpeed for weights with the dtype `dtype`."""
        zero: dict[str, JSON] = {"stage": self.zero_stage, "overlap_comm": False}
        zero["reduce_bucket_size"] = 16_000_000
        if self.offload in ("optimizer", "all"):
            zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
        if self.offload == "all":
            zero["offload_param"] = {"device": "cpu", "pin_memory": True}
        adamw = {"lr": 0.0, "weight_decay": 0.0, "torch_adam": True, "fused": True}
        return {
            # DeepSpeed requires this value. It is not used, because the learner divides batches.
            "train_micro_batch_size_per_gpu": 1,
            "zero_optimization": zero,
            "bf16": {"enabled": dtype == "bfloat16", "check_grad_overflow": True},
            "data_types": {"grad_accum_dtype": "fp32"},
            "gradient_clipping": 1.0 if self.zero_stage else 0.0,  # ClippedAdamW clips by itself
            "optimizer": {"type": "AdamW", "params": adamw},
        }


LearnerState = tuple[dict[str, Tensor], int]
"""The weights and optimizer state by tensor name, and the number of optimizer steps:
`({"model.lm_head.weight/exp_avg": tensor, ...}, 12)`.
"""


def fresh(job: UpdateJob, memory: Memory, critic: Critic) -> DeepSpeedEngine:
    """Return an engine with the policy of an update job, a new critic and a new optimizer."""
    model = load_policy(job.policy, job.dtype, critic, job.base, job.adapter, job.seed)
    parts = [model.model, model.critic] if model.critic is not None else [model.model]
    groups = [{"params": [p for p in part.parameters() if p.requires_grad]} for part in parts]
    if memory.checkpointing:
        recompute_activations(model)

    ranks = torch.distributed.get_world_size()
    if memory.zero_stage == 0 and job.dtype != "float32":
        assert ranks == 1, "refused before the run"
        # ZeRO keeps float32 copies of the weights; with a single rank it does not divide them
        memory = replace(memory, zero_stage=1)
    plain = memory.zero_stage == 0
    optimizer = ClippedAdamW(groups, lr=0.0, weight_decay=0.0, fused=True) if plain else None
    engine: DeepSpeedEngine = deepspeed.initialize(
        model=model, optimizer=optimizer, model_parameters=groups, config=memory.config(job.dtype)
    )[0]
    # with one rank the reduction only copies gradients, but the optimizers of ZeRO need it
    copies = isinstance(engine.optimizer, ClippedAdamW | BF16_Optimizer)
    engine.enable_backward_allreduce = ranks > 1 or not copies
    _make_moments(engine)
    return engine


def close(engine: DeepSpeedEngine) -> None:
    """Destroy an engine and free its tensors.

    The tensors are freed explicitly, because DeepSpeed 0.19 keeps references to the modules at ZeRO
    stage 3.
    """
    engine.destroy()
    for parameter in engine.module.parameters():
        vars(parameter).clear()
        parameter.data, parameter.grad = parameter.new_empty(0), None
    for optimizer in (engine.optimizer, engine.basic_optimizer):
        vars(optimizer).clear()
    vars(engine)["optimizer"] = None


def set_hyper_parameters(engine: DeepSpeedEngine, update: Update, critic_rate: float) -> None:
    """Set the hyper-parameters of the next optimizer steps.

    The learning rate of the critic is `critic_rate` times the learning rate of the policy.
    """
    for group, rate in zip(engine.optimizer.param_groups, (1.0, critic_rate), strict=False):
        group["lr"] = update.learning_rate * rate
        group["betas"] = update.betas
        group["weight_decay"] = update.weight_decay
    engine.optimizer.clip_grad = update.max_grad_norm


def copy_state(engine: DeepSpeedEngine) -> LearnerState:
    """Copy the weights, the moments of AdamW and the number of optimizer steps.

    Training that continues from this copy gives exactly the same weights as uninterrupted training.
    All ranks must call this function together. Only the first rank gets the tensors. On the other
    ranks, the returned dictionary of tensors is empty.
    """
    tensors: dict[str, Tensor] = {}
    for name, parameter in _parameters(engine):
        parts = {"weight": distributed.weight(engine, parameter)}
        parts |= {moment: distributed.moment(engine, parameter, moment) for moment in MOMENTS}
        # all ranks took part above, because ZeRO gathers shards collectively
        if torch.distributed.get_rank() == 0:
            tensors |= {
                f"{name}/{part}": tensor.to("cpu", copy=True) for part, tensor in parts.items()
            }
    moments = next(iter(engine.basic_optimizer.state.values()))
    return tensors, int(moments["step"])


def write_state(state: LearnerState, label: str, folder: Path) -> None:
    """Write a learner state and its label, such as "step/6", to a folder.

    `state` is a result of `copy_state` on the first rank.
    """
    tensors, steps = state
    save_file(tensors, folder / TENSORS)
    (folder / STATE).write_text(json.dumps({"label": label, "optimizer_steps": steps}))


def read_state(engine: DeepSpeedEngine, label: str, folder: Path) -> None:
    """Load a saved state into a new engine with the same policy.

    Raises FileNotFoundError if the state is missing. Raises ValueError if the saved label is not
    `label`, or if the saved weights of the policy differ from the engine's weights. Also raises
    ValueError if the state lacks weights of the engine's adapter or critic.
    """
    state = json.loads((folder / STATE).read_text())
    if state["label"] != label:
        raise ValueError(
            f"{folder} contains the learner state {state['label']!r}, expected {label!r}."
        )
    with safe_open(folder / TENSORS, "pt") as tensors:
        _require_weights(engine, {*tensors.keys()}, folder)
        for name, parameter in _parameters(engine):
            weight = tensors.get_tensor(f"{name}/weight")
            as_policy = distributed.weight(engine, parameter).cpu()
            # the state is float32, but the policy may be bfloat16: both are compared in the dtype
            # of the policy
            if name.startswith(POLICY) and not torch.equal(
                as_policy, weight.to(parameter.dtype).float()
            ):
                raise ValueError(
                    f"The learner state in {folder} belongs to another policy than the start "
                    f"policy: the weights {name} differ."
                )
            distributed.put(
                engine, parameter, weight, {m: tensors.get_tensor(f"{name}/{m}") for m in MOMENTS}
            )
    # AdamW's bias correction uses the number of steps: with 0, the next step would be too large
    _set_steps(engine, state["optimizer_steps"])


def _require_weights(engine: DeepSpeedEngine, stored: Set[str], folder: Path) -> None:
    for name, _ in _parameters(engine):
        if f"{name}/weight" not in stored:
            raise ValueError(
                f"The learner state in {folder} lacks the weights {name}, because its run trained "
                "another adapter or critic. Start with a fresh optimizer. In a fork, set "
                "fork.optimizer_state=fresh. In another run, set update.optimizer_state=fresh."
            )


def write_policy(engine: DeepSpeedEngine, source: Path, folder: Path) -> None:
    """Write the policy of an engine to a folder.

    The tokenizer is copied from the folder `source`. A probe, i.e. the policy's log-probabilities
    of test tokens, is also written, to check samplers. All ranks must call this function together.
    """
    model, is_first = engine.module.model, torch.distributed.get_rank() == 0
    weights: dict[str, Tensor] = {}
    for name, parameter in _parameters(engine):
        if name.startswith(POLICY):
            weight = distributed.weight(engine, parameter)
            if is_first:
                weights[name.removeprefix(POLICY)] = weight.to(parameter.dtype).cpu()

    tokens = probe.tokens_of(source)
    row = torch.tensor([tokens], device=engine.device)
    sampled = torch.arange(len(tokens), device=engine.device).unsqueeze(0) > 0
    with torch.no_grad():
        # on all ranks, because at stage 3 the weights of a layer are gathered during the pass
        logprobs, _, _ = engine(row, sampled, 1.0)

    if not is_first:
        return
    if hasattr(model, "peft_config"):
        model.save_pretrained(folder, state_dict=weights)
    else:
        sharded_save.write(model, weights, folder)
    for path in source.iterdir():
        if any(path.match(pattern) for pattern in TOKENIZER):
            shutil.copy(path, folder / path.name)
    probe.write(folder, tokens, [float(value) for value in logprobs[0, 1:]])


def _make_moments(engine: DeepSpeedEngine) -> None:
    # AdamW creates its moments in its first step, but they must exist before they can be loaded.
    # Therefore a step with learning rate 0 is taken. It is taken without DeepSpeed first, because
    # DeepSpeed expects that all moments exist after the step of the first parameter group.
    for part in (part for group in engine.basic_optimizer.param_groups for part in group["params"]):
        part.grad = torch.zeros_like(part) if part.grad is None else part.grad
    engine.basic_optimizer.step()
    row = torch.zeros(1, 2, dtype=torch.int64, device=engine.device)
    outputs = engine(row, torch.tensor([[False, True]], device=engine.device), 1.0)
    engine.set_gradient_accumulation_boundary(True)
    engine.backward(0.0 * torch.stack([part.sum() for part in outputs]).sum(), scale_wrt_gas=False)
    engine.step()
    if hasattr(engine.optimizer, "_hp_optimizer_states_linked"):
        # DeepSpeed 0.19 has linked the moments of the first group only
        engine.optimizer._hp_optimizer_states_linked = False
        engine.optimizer._lazy_init_hp_params_optimizer_state()
    _set_steps(engine, 0)


def _parameters(engine: DeepSpeedEngine) -> Iterator[tuple[str, nn.Parameter]]:
    return ((name, p) for name, p in engine.module.named_parameters() if p.requires_grad)


def _set_steps(engine: DeepSpeedEngine, steps: int) -> None:
    for moments in engine.basic_optimizer.state.values():
        moments["step"].fill_(steps)


class ClippedAdamW(torch.optim.AdamW):
    """AdamW that clips the gradient norm to `clip_grad`.

    A step with a gradient norm that is not finite is skipped. DeepSpeed reads `overflow` and
    `_global_grad_norm` after each step.
    """

    clip_grad = 1.0
    overflow = False
    _global_grad_norm = 0.0

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Clip the gradients, and take an optimizer step.

        If the gradient norm is not finite, only set `overflow`. `closure` must be None.
        """
        assert closure is None, "DeepSpeed gives none"
        parameters = [
            p for group in self.param_groups for p in group["params"] if p.grad is not None
        ]
        norm: Tensor = get_total_norm([p.grad for p in parameters])
        self._global_grad_norm, self.overflow = float(norm), not bool(norm.isfinite())
        if not self.overflow:
            clip_grads_with_norm_(parameters, self.clip_grad, norm)
            super().step()
