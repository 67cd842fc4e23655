"""Plans: JSON lists of sub-tasks, each for one tool."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter

_PLACE = re.compile(r"\{(\d+)\}")


class SubTask(BaseModel):
    """A sub-task of a plan:

        {"tool": "python", "subtask": "sum of {1} and {2}", "inputs": ["{1}", "{2}"],
         "depends_on": [1, 2]}

    `{1}` is the result of the first sub-task of the plan.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    tool: str
    subtask: str
    inputs: list[str]
    depends_on: list[int]


_PLAN = TypeAdapter(list[SubTask])
SCHEMA = json.dumps(_PLAN.json_schema())
"""The JSON schema of a plan."""


def parsed(text: str, earlier: int = 0) -> list[SubTask]:
    """Parse a plan. `earlier` is the number of sub-tasks that were executed before this plan.

    Text around the JSON list is ignored. Raises ValueError for a text without a plan, and for a
    sub-task that depends on itself or on a later sub-task. Also raises ValueError if the `inputs`
    of a sub-task contain a placeholder such as `{1}`, but its `depends_on` lacks the number 1.
    """
    begin, end = text.find("["), text.rfind("]")
    plan = _PLAN.validate_json(text[begin : end + 1])
    for number, step in enumerate(plan, earlier + 1):
        if wrong := [one for one in step.depends_on if not 0 < one < number]:
            raise ValueError(f"sub-task {number} depends on {wrong[0]}, expected an earlier one")
        if missing := places(step.inputs) - {*step.depends_on}:
            raise ValueError(
                f"sub-task {number} uses the results {missing}, which are not in depends_on"
            )
    return plan


def written(plan: Sequence[Mapping[str, Any]]) -> str:
    """Write a plan as JSON, with the fields of SubTask only."""
    return json.dumps([{name: step[name] for name in SubTask.model_fields} for step in plan])


def places(texts: Sequence[str]) -> set[int]:
    """Return the numbers of the sub-tasks to which placeholders in the texts refer.

    For example, the texts "{1}" and "sum of {1} and {2}" use the results of sub-tasks 1 and 2.
    """
    return {int(number) for text in texts for number in _PLACE.findall(text)}


def filled(text: str, values: Mapping[int, str]) -> str:
    """Replace `{1}`, `{2}`, ... in a text by the results of the sub-tasks 1, 2, ...

    `values` maps sub-task numbers to results. Placeholders without a result stay unchanged.
    """
    return _PLACE.sub(lambda match: values.get(int(match[1]), match[0]), text)
