"""DeepSpeed's configuration, and the check before a state is used."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentfly_core.training.engine import Memory, read_state


def offloaded(zero_stage: int, offload: str) -> set[str]:
    """The parts that DeepSpeed moves to the CPU's memory."""
    zero: Any = Memory(zero_stage, offload, False).config("bfloat16")["zero_optimization"]
    assert zero["stage"] == zero_stage
    return {name for name in zero if name.startswith("offload")}


def test_an_offload_moves_the_optimizer_or_the_weights_too() -> None:
    assert offloaded(2, "none") == set()
    assert offloaded(2, "optimizer") == {"offload_optimizer"}
    assert offloaded(3, "all") == {"offload_optimizer", "offload_param"}


def test_a_state_with_another_label_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "learner.json").write_text(json.dumps({"label": "step/5", "optimizer_steps": 2}))
    engine: Any = None
    with pytest.raises(ValueError, match="the learner state 'step/5', expected 'step/6'"):
        read_state(engine, "step/6", tmp_path)
