"""The command that tries a model."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from agentfly_core.config import loading
from flows.local.terminal import VisibleConsole


def admit(
    model: Annotated[str, Parameter(name="MODEL")],
    /,
    *,
    dtype: Literal["float32", "bfloat16"] = "float32",
) -> int:
    """Try whether this machine can train a model.

    For example `agentfly admit Qwen/Qwen3-0.6B`.

    Tries files, tokenizer, learner and samplers in the same order as a run needs them.

    Args:
        model: a hub id, a folder, `package:NAME` or `nano:NAME`
        dtype: the weights' type
    """
    from agentfly_core.pipeline import admission  # loads torch, which takes seconds

    site, console, admitted = loading.site("local"), VisibleConsole(), True
    os.environ.setdefault("DS_ACCELERATOR", site.device)
    with tempfile.TemporaryDirectory(prefix="agentfly-") as scratch, console.status(model):
        for proof in admission.admit(model, dtype, site, Path(scratch)):
            mark = "ok" if proof.passed else "NO"
            console.print(f"{mark:<4}{proof.name:<26}{proof.detail}", soft_wrap=True)
            admitted = admitted and proof.passed
    console.print(f"{model} {'can' if admitted else 'cannot'} be trained on this machine.")
    return 0 if admitted else 1
