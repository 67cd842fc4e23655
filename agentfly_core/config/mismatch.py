"""Error messages about wrong settings, and settings with names of TRL or verl."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from pydantic_core import ErrorDetails

UNSHOWN = "unshown"  # type of a fault with a value that may be secret
SYNONYMS = {
    # TRL, trl.GRPOConfig
    "beta": "algorithm.kl",
    "epsilon": "algorithm.policy_loss.low",
    "epsilon_high": "algorithm.policy_loss.high",
    "eval_steps": "evaluate.every",
    "generation_batch_size": "rollout.problems",
    "loss_type": "algorithm.aggregation.use",
    "mask_truncated_completions": "algorithm.skip_cut",
    "max_completion_length": "agent.max_tokens",
    "max_prompt_length": "agent.max_model_len",
    "max_steps": "steps",
    "model_name_or_path": "model",
    "num_generations": "rollout.group_size",
    "num_iterations": "update.epochs",
    "num_train_epochs": "steps",
    "per_device_train_batch_size": "rollout.problems",
    "reward_funcs": "rewards",
    "reward_weights": "rewards",
    "save_steps": "update.learner_every",
    "steps_per_generation": "update.mini_batches",
    "train_dataset": "data.use",
    # verl, main_ppo; the last part of its dotted names
    "adv_estimator": "algorithm.use",
    "clip_ratio": "algorithm.policy_loss.low",
    "clip_ratio_high": "algorithm.policy_loss.high",
    "clip_ratio_low": "algorithm.policy_loss.low",
    "grad_clip": "update.max_grad_norm",
    "kl_loss_coef": "algorithm.kl",
    "loss_agg_mode": "algorithm.aggregation.use",
    "lr": "update.learning_rate",
    "max_assistant_turns": "agent.max_turns",
    "max_response_length": "agent.max_tokens",
    "n": "rollout.group_size",
    "path": "model",
    "ppo_epochs": "update.epochs",
    "ppo_mini_batch_size": "update.mini_batches",
    "save_freq": "update.learner_every",
    "test_freq": "evaluate.every",
    "total_epochs": "steps",
    "total_training_steps": "steps",
    "train_batch_size": "rollout.problems",
    "train_files": "data.train_file",
}
"""The setting of ours that TRL's or verl's name is closest to; units may differ."""
_OPTION = re.compile(r"[a-z-]+\[.*\]", re.DOTALL)


def message_of(fault: ErrorDetails) -> str:
    """The message of one of pydantic's faults: "Input should be a valid integer"."""
    return str(fault["msg"]).removeprefix("Value error, ")


def place(steps: Iterable[int | str]) -> str:
    """The dotted key, `adapter.targets`, without pydantic's names of union members."""
    return ".".join(str(step) for step in steps if not _OPTION.fullmatch(str(step)))


def settings_like(key: str, settings: Sequence[str]) -> list[str]:
    """Return similar settings: `["update.learning_rate"]` for `learning_rate`,
    `--update.learning-rate` or verl's `actor_rollout_ref.actor.optim.lr`, or an empty list.
    """
    key = key.lstrip("-").replace("-", "_")
    last = key.rpartition(".")[2]
    if key in settings:
        return [key]
    same = [name for name in settings if name.rpartition(".")[2] == last]
    synonyms = [SYNONYMS[last]] if last in SYNONYMS else []
    return sorted(same, key=lambda name: name.count(".")) + synonyms
