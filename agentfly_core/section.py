"""A part of the configuration, and one that is chosen by name."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, BeforeValidator, ConfigDict


class Section(BaseModel):
    """A part of the configuration: frozen, and closed to unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def _chosen(value: Any) -> Any:
    return {"use": value} if isinstance(value, str) else value


BY_NAME = BeforeValidator(_chosen)
"""Where one of several sections is chosen by its `use`, the name alone is short for `{use: name}`."""
