"""The probe of a policy: tokens with stored log-probabilities, which show whether a sampler has the
right weights.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from agentfly_core.models.type_names import PreTrainedModel, Tensor

TOKENS = 64
TOLERANCE = {"float32": 1e-4, "bfloat16": 0.05}
"""For each dtype, the largest allowed median distance (in nats) between a sampler's
log-probabilities and the log-probabilities stored with the policy. In a benchmark of vLLM in
bfloat16, right weights gave distances of at most 0.037. Weights with 2 % noise gave at least 0.057.
The benchmark ran SmolLM2-135M on CPU (`benchmarks.weight_probe`).
"""


class WrongWeights(RuntimeError):
    """A sampler's log-probabilities differ too much from the values stored with the policy.

    `distance` is the median of the absolute differences, in nats.
    """

    def __init__(self, message: str, distance: float) -> None:
        super().__init__(message)
        self.distance = distance


def likely_tokens(model: PreTrainedModel) -> list[int]:
    """Return token 0, followed by the 63 tokens that the model samples greedily after it.

    Greedy tokens are likely. Rounding changes the log-probabilities of likely tokens least.
    """
    import torch  # imported here, because workers need this module without torch

    row = torch.zeros(1, 1, dtype=torch.int64, device=model.device)
    more = TOKENS - 1
    new = {"min_new_tokens": more, "max_new_tokens": more, "do_sample": False, "pad_token_id": 0}
    generate: Callable[..., Tensor] = model.generate  # type: ignore[assignment]  # by a mixin
    tokens: list[int] = generate(row, attention_mask=torch.ones_like(row), **new)[0].tolist()
    return tokens


def tokens_of(policy: Path) -> list[int]:
    """Read the tokens of a policy's probe from probe.json in the policy's folder."""
    tokens: list[int] = json.loads((policy / "probe.json").read_bytes())["tokens"]
    return tokens


def of_model(model: PreTrainedModel, tokens: Sequence[int]) -> list[float]:
    """Compute the log-probabilities of all `tokens` except the first, at temperature 1."""
    import torch

    row = torch.tensor([tokens], device=model.device)
    with torch.no_grad():
        # in float32, because bfloat16 would round the sum over the vocabulary
        logprobs = model(input_ids=row).logits[0, :-1].float().log_softmax(-1)
    return [float(value) for value in logprobs.gather(-1, row[0, 1:, None])[:, 0]]


def write(folder: Path, tokens: Sequence[int], logprobs: Sequence[float]) -> None:
    """Write a probe to the file probe.json in the folder of a policy: `{"tokens": [64 ids],
    "logprobs": [63 floats]}`.

    The log-probabilities belong to all tokens except the first.
    """
    (folder / "probe.json").write_text(
        json.dumps({"tokens": list(tokens), "logprobs": list(logprobs)})
    )


@dataclass(frozen=True, slots=True)
class Probe:
    """The stored probe of a policy, which tests whether a sampler has the right weights: 64 tokens,
    and the log-probabilities of the last 63 tokens at temperature 1. `dtype` is the dtype of the
    policy, and `digest` is a digest of probe.json.
    """

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    dtype: str
    digest: str

    @classmethod
    def of(cls, policy: Path, base: Path | None = None) -> Probe:
        """Read the probe from the file probe.json in the folder of a policy.

        If the policy is an adapter, `base` is the folder of its base model. The dtype of an adapter
        is read from the config.json of the base model.
        """
        content = (policy / "probe.json").read_bytes()
        stored, digest = json.loads(content), hashlib.sha256(content).hexdigest()[:16]
        config = json.loads(((base or policy) / "config.json").read_bytes())
        dtype = config.get("dtype", "float32")
        return cls(tuple(stored["tokens"]), tuple(stored["logprobs"]), dtype, digest)

    def require(self, logprobs: Sequence[float], dtype: str, sampler: str, policy: Path) -> None:
        """Raise WrongWeights if a sampler's `logprobs` differ too much from the probe's `logprobs`.

        `dtype` is the dtype of the sampler. TOLERANCE has the largest allowed median difference for
        each dtype. If sampler and policy have different dtypes, the larger of the two limits
        applies.
        """
        distance = median(abs(a - b) for a, b in zip(logprobs, self.logprobs, strict=True))
        tolerance = max(TOLERANCE[dtype], TOLERANCE[self.dtype])
        # `not <=`, because nan must not pass
        if not distance <= tolerance:
            raise WrongWeights(
                f"{sampler} loaded {policy}, but its log-probabilities differ from those in "
                f"probe.json: the median difference is {distance:.2g}, expected at most "
                f"{tolerance:g} in {dtype}. Either {sampler} did not load these weights, or "
                "rounding errors are large, because the log-probabilities are large (mean "
                f"{fmean(self.logprobs):.3g}). If that is the cause, lower "
                "update.learning_rate.",
                distance,
            )
