"""Stages with some functions of a test."""

from typing import Any

from agentfly_core.pipeline.loop.stages import Stages


def stages_with(**functions: Any) -> Stages:
    """All stages, some with these functions instead of their own."""
    stages = Stages()
    vars(stages).update(functions)
    return stages
