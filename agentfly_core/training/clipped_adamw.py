"""AdamW without ZeRO around it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm


class ClippedAdamW(torch.optim.AdamW):
    """Clips the norm of all gradients to `clip_grad`, and takes no step when that norm is not finite.

    DeepSpeed reads `overflow` and `_global_grad_norm` after a step, as it does with the optimizers of its own.
    """

    clip_grad = 1.0
    overflow = False
    _global_grad_norm = 0.0

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Take the step, or say that it was left out: `overflow`."""
        assert closure is None, "DeepSpeed gives none"
        parameters = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        norm: Tensor = get_total_norm([p.grad for p in parameters])
        self._global_grad_norm, self.overflow = float(norm), not bool(norm.isfinite())
        if not self.overflow:
            clip_grads_with_norm_(parameters, self.clip_grad, norm)
            super().step()
