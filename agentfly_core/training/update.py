"""An update of a policy: compute signals and advantages, then take the optimizer steps.

The signals are the reference policy's log-probabilities, the old log-probabilities and the critic's
values. Old log-probabilities and the critic's values are computed with the weights before the first
optimizer step. With the setting `update.old_logprobs: sampler`, the sampler's log-probabilities are
the old log-probabilities. An update has `epochs` x `mini_batches` optimizer steps.
"""

import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from deepspeed import DeepSpeedEngine
from deepspeed.accelerator import get_accelerator
from torch import Tensor

from agentfly_core.config.tasks import SINGLE
from agentfly_core.models.model_config import require_trainable
from agentfly_core.rl.batch import RolloutBatch, micro_batches
from agentfly_core.rl.interface import Algorithm, Outputs, mismatch
from agentfly_core.rl.kl import kl
from agentfly_core.rl.outcomes import Outcomes
from agentfly_core.training.data import UpdateData, mini_batches
from agentfly_core.training.distributed import Ranks
from agentfly_core.training.job import SKIPPED_IN_A_ROW, OnStep, UpdateJob
from agentfly_core.training.policy import Policy
from agentfly_core.training.prefix_tree import PrefixTrees, build_trees, flatten


@dataclass
class Updater:
    """Runs an update. Every rank has the whole batch, but computes only some rows (sequences).

    Some of the metrics:

    - `train/entropy`, `train/kl_reference`, `train/clip_fraction`: means over tokens
    - `train/kl`: the mean over tokens of the KL divergence from the policy before the update
    - `train/learned_share`: the share of tokens in rows with a backward pass
    - `train/not_finite_share`: the share of tokens in micro-batches that were skipped, because
      their loss is not finite
    - `train/loss`, `train/grad_norm`: means over the optimizer steps that were not skipped
    """

    engine: DeepSpeedEngine
    job: UpdateJob
    algorithm: Algorithm
    ranks: Ranks
    token_budget: int
    steps: Counter[str] = field(default_factory=Counter)
    sums: dict[str, float] = field(default_factory=partial(defaultdict, float))
    seconds: dict[str, float] = field(default_factory=partial(defaultdict, float))
    norms: list[float] = field(default_factory=list)
    mismatch: dict[str, float] = field(default_factory=dict)
    on_policy: bool = False
    one_temperature: bool = True
    skipped: int = 0

    def run(self, data: UpdateData, reference: Policy | None, progress: OnStep) -> dict[str, float]:
        """Take the optimizer steps, and return the metrics of the update.

        `progress` is called after each optimizer step.
        """
        self.skipped = int(self.job.before.get("train/skipped_in_a_row", 0))
        require_trainable(self.engine.module.model.config, self.job.update.share_prefixes)
        # if all temperatures are equal, a number is used, because a division by a tensor changes
        # the last bits of logits
        own = data.batch.temperature[data.batch.sampled]
        self.one_temperature = bool((own == torch.tensor(self.job.temperature)).all())
        members = torch.unique(data.batch.trajectory)
        # mini-batches are drawn first, because their number determines which signals are needed
        steps = mini_batches(self.job, members)
        batch = self._with_signals(data.batch, reference, len(steps))
        estimate = self.algorithm.estimate_advantages(data.outcomes, batch)
        batch = replace(batch, advantages=estimate.advantages, returns=estimate.returns)
        measured = dict(self.algorithm.measures(data.outcomes, batch))
        for done, chosen in enumerate(steps, 1):
            self._step(batch.select(torch.isin(batch.trajectory, chosen).nonzero().flatten()))
            progress(done, len(steps))
            # the policy has diverged, so further steps would be skipped, too
            if self.skipped == SKIPPED_IN_A_ROW:
                break
        return self._metrics(data, measured | by_task(data.outcomes, batch))

    def loss_of(self, batch: RolloutBatch) -> float:
        """Return the mean of -log p over the sampled tokens of a batch, without training on
        them.
        """
        logprobs, _ = self._score(self.engine, batch)
        return -float(logprobs[batch.sampled].double().mean())

    def _with_signals(
        self, batch: RolloutBatch, reference: Policy | None, steps: int
    ) -> RolloutBatch:
        """Return the batch with the log-probabilities and critic values that the algorithm needs.

        `steps` is the number of optimizer steps of the update. Old log-probabilities that the
        algorithm needs are added in three cases: `steps` is above 1, the algorithm has a critic, or
        the advantages depend on log-probabilities or critic values. In all other cases, the forward
        pass of the single optimizer step computes them. With the setting
        `update.old_logprobs: sampler`, the old log-probabilities in the batch do not change.
        """
        if reference is not None:
            require_trainable(reference.model.config, self.job.update.share_prefixes)
            logprobs, _ = self._score(reference.to(self.engine.device), batch)
            batch = replace(batch, reference_logprobs=logprobs)
            reference.to("cpu")  # the optimizer steps need its memory
        needs = self.algorithm.needs
        # With a single optimizer step, the forward pass of this step also computes the old
        # log-probabilities (`on_policy`), unless the advantages depend on them.
        ours = needs.old_logprobs and self.job.update.old_logprobs == "learner"
        self.on_policy = ours and steps <= 1 and not needs.signals_before_advantages
        if (ours and not self.on_policy) or needs.critic != "none":
            logprobs, values = self._score(self.engine, batch)
            batch = replace(
                batch, old_values=values, old_logprobs=logprobs if ours else batch.old_logprobs
            )
            self._compare(logprobs, batch)  # before training changes the weights
        return batch

    def _score(self, model: Policy | DeepSpeedEngine, batch: RolloutBatch) -> tuple[Tensor, Tensor]:
        """Return the log-probabilities and the critic's values of sampled tokens, each [rows, T].

        Each rank computes some rows, but the result has all rows of the batch on every rank.
        """
        logprobs = torch.zeros_like(batch.rollout_logprobs)
        values = torch.zeros_like(logprobs)
        with torch.no_grad(), self._clock("time/forward"):
            for rows, micro, trees in self._micro_batches(batch, batch.lengths > 0):
                outputs = model(micro.tokens, micro.sampled, self._temperature(micro), trees)
                _put(logprobs, rows, outputs[0])
                _put(values, rows, outputs[2])
        # a rank has zeros in the rows that other ranks have computed, so the sum has all rows
        return self.ranks.sum(logprobs), self.ranks.sum(values)

    def _step(self, batch: RolloutBatch) -> None:
        """Take an optimizer step.

        Rows (sequences) whose advantages are all 0 get only a forward pass, for metrics. An
        algorithm with `needs.trains_all_rows` also computes gradients for these rows.
        """
        batch = replace(batch, weight=self.algorithm.weights(batch))
        # weights are computed for all rows of the step, because a mean over tokens must not depend
        # on how rows are divided into micro-batches and among ranks
        new_logprobs = torch.zeros_like(batch.rollout_logprobs)
        # equal rewards in a group give advantages of exactly 0; such rows need no backward pass
        teaching = batch.advantages.any(dim=1) | self.algorithm.needs.trains_all_rows
        with torch.no_grad():
            for rows, micro, trees in self._micro_batches(batch, ~teaching):
                _put(new_logprobs, rows, self._loss(micro, trees)[1])
        step_loss, parts = 0.0, list(self._micro_batches(batch, teaching))
        for number, (rows, micro, trees) in enumerate(parts, 1):
            loss, logprobs = self._loss(micro, trees)
            _put(new_logprobs, rows, logprobs)
            step_loss += loss.item()
            with self._clock("time/backward"):
                self.engine.set_gradient_accumulation_boundary(number == len(parts))
                # DeepSpeed divides gradients by the number of ranks, but the weights already have
                # the mean over all ranks, so the loss is multiplied by this number
                self.engine.backward(loss * self.ranks.count, scale_wrt_gas=False)
        # only in the first step, because the weights change in each step
        if self.job.scores and not self.mismatch:
            self._compare(self.ranks.sum(new_logprobs), batch)
        if not parts:
            self.steps["empty"] += 1
            return
        with self._clock("time/optimizer"):
            self.engine.step()
        if self.engine.was_step_applied():
            self.steps["taken"] += 1
            self.skipped = 0
            self.sums["loss"] += step_loss
            self.norms.append(float(self.engine.get_global_grad_norm()))
        else:
            self.steps["skipped"] += 1
            self.skipped += 1

    def _loss(self, micro: RolloutBatch, trees: PrefixTrees | None) -> tuple[Tensor, Tensor]:
        with self._clock("time/forward"):
            logprobs, entropy, values = self.engine(
                micro.tokens, micro.sampled, self._temperature(micro), trees
            )
            if self.on_policy:
                # detached: otherwise the ratio to the old policy would be a constant
                micro = replace(micro, old_logprobs=logprobs.detach())
            loss = self.algorithm.loss(Outputs(logprobs, entropy, values), micro)
        learned = torch.full_like(entropy, float(torch.is_grad_enabled()))
        metrics = {"train/entropy": entropy, "train/learned_share": learned, **loss.metrics}
        if self.algorithm.needs.old_logprobs:
            # k3 is never negative and has less variance than k1, which matters for few tokens
            metrics["train/kl"] = kl(micro.old_logprobs, logprobs.detach(), "k3")
        # a loss that is not finite would turn each mean of the update into nan
        counted = micro.sampled & loss.total.isfinite()
        for name, value in metrics.items():
            self.sums[name] += float(value.detach()[counted].double().sum())
        self.sums["tokens"] += float(counted.sum())
        self.sums["lost"] += float((micro.sampled & ~counted).sum())
        if loss.total.isfinite():
            return loss.total, logprobs.detach()
        # with a loss of nan, the optimizer skips the step
        return math.nan * (logprobs.sum() + values.sum()), logprobs.detach()

    def _temperature(self, micro: RolloutBatch) -> float | Tensor:
        return self.job.temperature if self.one_temperature else micro.temperature

    def _micro_batches(
        self, batch: RolloutBatch, wanted: Tensor
    ) -> Iterator[tuple[Tensor, RolloutBatch, PrefixTrees | None]]:
        """Yield the micro-batches of this rank.

        `wanted` is a mask of the rows that are divided into micro-batches. Each micro-batch is
        yielded with the indices of its rows in `batch`, and with prefix trees if some of its rows
        have a common prefix.
        """
        rows = wanted.nonzero().flatten()
        # with a limit of 0, each tree has only one row
        limit = self.token_budget if self.job.update.share_prefixes else 0
        built = build_trees(batch.tokens[rows], batch.lengths[rows], limit)
        sizes = torch.tensor([tree.size for tree in built], dtype=torch.int64)
        for chosen in micro_batches(sizes, self.token_budget, self.ranks.count)[self.ranks.rank]:
            picked = [built[index] for index in chosen.tolist()]
            mine = rows[[row for tree in picked for row in tree.rows]]
            if picked:
                micro = batch.select(mine)
            else:
                # a pass without sampled tokens, because ranks exchange weights or gradients in each
                # pass
                shortest = batch.select(batch.lengths.argmin().unsqueeze(0))
                nothing = torch.zeros_like(shortest.weight)
                micro = replace(
                    shortest, sampled=nothing.bool(), advantages=nothing, weight=nothing
                )
            trees = None
            # without common prefixes, rows are used instead of trees, which need an N x N mask
            if len(mine) > len(picked):
                trees = flatten(micro.tokens, picked).to(self.engine.device)
            yield mine, micro.to(self.engine.device), trees

    def _compare(self, learner: Tensor, batch: RolloutBatch) -> None:
        self.mismatch = mismatch(learner[batch.sampled], batch.rollout_logprobs[batch.sampled])

    @contextmanager
    def _clock(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        # wait for GPU kernels, which run asynchronously: their time belongs to this section
        get_accelerator().synchronize()
        self.seconds[name] += time.perf_counter() - started

    def _metrics(self, data: UpdateData, measured: Mapping[str, float]) -> dict[str, float]:
        sums = self.ranks.add_up({"tokens": 0.0, "lost": 0.0, "loss": 0.0} | self.sums)
        tokens, lost, loss = (sums.pop(name) for name in ("tokens", "lost", "loss"))
        metrics = {name: value / max(tokens, 1.0) for name, value in sums.items()}
        metrics["train/not_finite_share"] = lost / max(tokens + lost, 1.0)
        if self.norms:
            metrics["train/loss"] = loss / len(self.norms)
            metrics["train/grad_norm"] = sum(self.norms) / len(self.norms)
            metrics["train/grad_norm_max"] = max(self.norms)
        if self.mismatch:
            metrics = {"mismatch/masked_share": 0.0} | metrics | self.mismatch
        if seconds := sum(self.seconds.values()):
            metrics["train/tokens_per_second"] = tokens / seconds
        counts = {
            "train/lr": self.job.update.learning_rate,
            "train/tokens": float(data.batch.sampled.sum()),
            "train/rows": float(len(data.batch.lengths)),
            "train/trajectories": float(data.trajectories),
            "train/unscored": float(data.unscored),
            "train/optimizer_steps": float(self.steps["taken"]),
            "train/skipped_steps": float(self.steps["skipped"]),
            "train/skipped_in_a_row": float(self.skipped),
            "train/empty_steps": float(self.steps["empty"] or not len(data.batch.lengths)),
        }
        metrics |= self.seconds | counts | dict(measured)
        return {name: value for name, value in metrics.items() if math.isfinite(value)}


def by_task(outcomes: Outcomes, batch: RolloutBatch) -> dict[str, float]:
    """Return metrics for each task of a mixture.

    These are the mean, the mean absolute value and the standard deviation of the advantages, and
    the mean of the baselines. With a single task, the result is empty.
    """
    metrics: dict[str, float] = {}
    for name, members in outcomes.tasks.items():
        if name == SINGLE:  # with one task, these would equal the metrics of all trajectories
            continue
        chosen = torch.tensor(members)
        own = batch.advantages[torch.isin(batch.trajectory, chosen).unsqueeze(1) & batch.sampled]
        figures = {
            "advantage": own.mean(),
            "advantage_size": own.abs().mean(),
            "advantage_std": own.std(correction=0),
            "baseline": outcomes.baselines[chosen].nanmean(),
        }
        metrics |= {f"task/{name}/train/{key}": float(value) for key, value in figures.items()}
    return metrics


def _put(whole: Tensor, rows: Tensor, part: Tensor) -> None:
    whole[rows, : part.shape[1]] = part[: len(rows)].to(whole.device)
