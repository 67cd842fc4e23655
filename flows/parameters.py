"""What a flow is started with, as the Prefect form shows it and as its server checks it before anything starts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, get_args

from pydantic import BaseModel, Field, WithJsonSchema
from pydantic.fields import FieldInfo

from agentfly_core import experiment
from agentfly_core.config import Part, Science, Section


def override_pattern(kind: type[BaseModel]) -> str:
    """The regular expression of `key=value` for the keys of a configuration.

    `^(steps|data(\\.[^=]+)?|rollout(\\.(problems|group_size))?)=` accepts `rollout.problems=8` and refuses `stpes=3`.
    """
    return f"^({'|'.join(_keys(kind))})="


def _keys(kind: type[BaseModel]) -> Iterator[str]:
    for name, field in kind.model_fields.items():
        section = _section(field)
        if section is not None and not issubclass(section, Part):
            yield rf"{name}(\.({'|'.join(_keys(section))}))?"
        else:
            yield name + (r"(\.[^=]+)?" if section or _is_mapping(field) else "")


def _section(field: FieldInfo) -> type[Section] | None:
    options = [field.annotation, *get_args(field.annotation)]
    return next((option for option in options if isinstance(option, type) and issubclass(option, Section)), None)


def _is_mapping(field: FieldInfo) -> bool:
    return getattr(field.annotation, "__origin__", None) is dict


EXAMPLES = ["steps=30", "update.learning_rate=1e-4", "rollout.problems=8"]
OVERRIDE: dict[str, Any] = {"type": "string", "pattern": override_pattern(Science), "examples": EXAMPLES}

SITES = sorted({"local", *experiment.names(experiment.CONF / "site")})

ExperimentName = Annotated[str, Field(json_schema_extra={"enum": list(experiment.names())})]
SiteName = Annotated[str, Field(json_schema_extra={"enum": list(SITES)})]
RunName = Annotated[str, Field(json_schema_extra={"pattern": r"^([A-Za-z0-9][A-Za-z0-9._-]*)?$"})]
Overrides = Annotated[list[Annotated[str, WithJsonSchema(OVERRIDE)]], Field(examples=[EXAMPLES])]
