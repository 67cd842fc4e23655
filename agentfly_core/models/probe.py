"""The weight probe: stored log-probabilities that verify a sampler's weights."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

import torch

from agentfly_core.system.formats import hashing

if TYPE_CHECKING:
    from transformers import PreTrainedModel

TOKENS = 32
TOLERANCE = {"float32": 1e-4, "bfloat16": 0.3}
"""Largest mean distance from a probe. Right weights had at most 2e-5 and 0.16 in vLLM, noise of 2 %
at least 0.45 in bfloat16 (SmolLM2-135M on CPU, 19 probes)."""


class WrongWeights(RuntimeError):
    """A sampler's log-probabilities differ from the probe that was stored with the policy."""


def tokens(vocabulary: int) -> list[int]:
    """The 32 token ids of the probe for this vocabulary size."""
    return [hashing.seed("probe", position) % vocabulary for position in range(TOKENS)]


def of_model(model: PreTrainedModel) -> list[float]:
    """Log-probabilities of the probe's tokens after the first, at temperature 1."""
    row = torch.tensor([tokens(model.config.vocab_size)], device=model.device)
    with torch.no_grad():
        logprobs = model(input_ids=row).logits[0, :-1].float().log_softmax(-1)
    return [float(value) for value in logprobs.gather(-1, row[0, 1:, None])[:, 0]]


def write(folder: Path, vocabulary: int, logprobs: Sequence[float]) -> None:
    """Write probe.json into a policy directory: `{"tokens": [32 ids], "logprobs": [31 floats]}`."""
    (folder / "probe.json").write_text(
        json.dumps({"tokens": tokens(vocabulary), "logprobs": list(logprobs)})
    )


@dataclass(frozen=True, slots=True)
class Probe:
    """The stored probe of a policy: 32 tokens and 31 log-probabilities at temperature 1."""

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    dtype: str
    digest: str

    @classmethod
    def of(cls, policy: Path, base: Path | None = None) -> Probe:
        """The probe of a policy directory; an adapter has the dtype of its `base`."""
        content = (policy / "probe.json").read_bytes()
        stored, digest = json.loads(content), hashlib.sha256(content).hexdigest()[:16]
        config = json.loads(((base or policy) / "config.json").read_bytes())
        dtype = config.get("dtype", "float32")
        return cls(tuple(stored["tokens"]), tuple(stored["logprobs"]), dtype, digest)

    def require(self, logprobs: Sequence[float], dtype: str, sampler: str, policy: Path) -> None:
        """Raise WrongWeights for other log-probabilities, by the coarser dtype of the two."""
        distance = fmean(abs(a - b) for a, b in zip(logprobs, self.logprobs, strict=True))
        tolerance = max(TOLERANCE[dtype], TOLERANCE[self.dtype])
        if not distance <= tolerance:
            raise WrongWeights(
                f"{sampler} loaded {policy}, but its log-probabilities differ from probe.json "
                f"by {distance:.2g} on average, expected at most {tolerance:g} in {dtype}. "
                "Either it has other weights, or they are so large that rounding matters (mean "
                f"{fmean(self.logprobs):.3g}): lower update.learning_rate."
            )
