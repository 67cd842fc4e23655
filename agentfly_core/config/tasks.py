"""The tasks that an experiment mixes, and what it then is as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    Field,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    ValidationError,
    model_serializer,
)

from agentfly_core.config.parts import Data, PoolSettings, RewardPart, ToolPart
from agentfly_core.config.section import Positive, Section
from agentfly_core.system.formats.json_value import JSON

DATA = "agentfly_core.datasets.mixture:mixture"
DEMONSTRATIONS = "agentfly_core.experiment.policy_path:of_tasks"
GOAL = "goal"
"""What the reward that says solved is called in the scores of a mixture, whichever it is of a task.
"""
TASK = "task"
"""What tells the problems of a mixture apart in an evaluation, beside the fact of `evaluate.by`."""
SINGLE = "single"
"""The task of an experiment that mixes none. Datasets and episodes contain it, and experiments with
equal settings share them, so it is not the experiment's name.
"""


def task_key(task: str, key: str) -> str:
    """Return the setting of a task: `tasks.shop.data` in a mixture, else `data`."""
    return key if task == SINGLE else f"tasks.{task}.{key}"


def _not_single(name: str) -> str:
    if name == SINGLE:
        raise ValueError(f"got {SINGLE!r}, the task of experiments without `tasks`; rename it")
    return name


TaskName = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$"), AfterValidator(_not_single)
]


class TaskLimits(Section):
    """What a task has of the section `agent` for itself: `{system: "You shop.", max_turns: 8}`."""

    system: str | None = None
    max_turns: Positive | None = None
    max_tokens: Positive | None = None
    max_observation_tokens: Annotated[int, Field(ge=64)] | None = None
    max_model_len: Positive | None = None
    max_sampled_tokens: Positive | None = None
    deadline: Annotated[float, Field(gt=0)] | None = None

    @model_serializer(mode="wrap")
    def _without_none(self, full: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {key: value for key, value in full(self).items() if value is not None}


class Demonstrations(Section):
    """What the warm start imitates on the problems of a task: see `WarmStart`."""

    demonstrations: str
    settings: dict[str, Any] = Field(default_factory=dict)


class TaskSettings(Section):
    """One of the tasks of a mixture: `{weight: 2, data: {use: ..., train: 2048, test: 200}, tools:
    [...], rewards: {...}, agent: {max_turns: 6}}`.

    `weight` is its share of a step's problems, among the weights of all. `tools`, `rewards` and
    `environments` stand for the experiment's where the task has its own, and the limits under
    `agent` one by one. `goal` is its reward that says solved (1 or more), needed when there are
    several. All else is the same for all tasks.
    """

    weight: Annotated[float, Field(gt=0)] = 1.0
    data: Data
    agent: TaskLimits = TaskLimits()
    tools: tuple[ToolPart, ...] | None = None
    rewards: dict[str, RewardPart] | None = None
    environments: dict[str, PoolSettings] | None = None
    goal: str = ""
    warm_start: Demonstrations | None = None

    @property
    def own(self) -> dict[str, Any]:
        """The sections that stand for the experiment's."""
        sections = {name: getattr(self, name) for name in ("tools", "rewards", "environments")}
        return {name: section for name, section in sections.items() if section is not None}


_TASKS = TypeAdapter(dict[TaskName, TaskSettings])


def quotas(weights: Mapping[str, float], count: int) -> dict[str, int]:
    """`count` divided in these proportions by the method of largest remainders; of equal remainders
    the first counts: `quotas({"sums": 2, "shop": 1}, 8)` is `{"sums": 5, "shop": 3}`.
    """
    exact = {name: count * weight / sum(weights.values()) for name, weight in weights.items()}
    counts = {name: int(share) for name, share in exact.items()}
    missing = count - sum(counts.values())
    for name in sorted(exact, key=lambda name: counts[name] - exact[name])[:missing]:
        counts[name] += 1
    return counts


def mixed(settings: Mapping[str, Any]) -> dict[str, Any]:
    """An experiment's settings with the sections that follow from its `tasks`: its data are theirs,
    and so is what its warm start imitates.

    Raises ValueError for data or demonstrations of the experiment beside those.
    """
    try:
        tasks = _TASKS.validate_python(settings["tasks"])
    except ValidationError:  # it is reported with its place when the whole is read, and it alone
        whole = {"data": {"use": DATA, "train": 1, "test": 1}, "rewards": {}, **settings}
        if isinstance(shown := settings.get("warm_start"), Mapping):
            whole["warm_start"] = {"demonstrations": DEMONSTRATIONS, **shown}
        return whole
    data = settings.get("data") or {}
    if data.get("use") != DATA and (beside := data.keys() - {"seed"}):
        raise ValueError(
            f"data.{min(beside)}: each of the tasks {', '.join(tasks)} has data of its own; set "
            f"tasks.{next(iter(tasks))}.data.{min(beside)}. Only data.seed is the experiment's."
        )
    mixture = {"rewards": {}, **settings, "data": data_of(tasks, data.get("seed"))}
    if warm_start := settings.get("warm_start"):
        mixture["warm_start"] = _warm_start(warm_start, tasks)
    return mixture


def datasets(data: Mapping[str, Any]) -> list[str]:
    """The import paths that a dataset comes from; in a mixture those of its tasks, too."""
    parts = data.get("tasks", {}).values() if data["use"] == DATA else ()
    return [data["use"], *(part["use"] for part in parts)]


def data_of(tasks: Mapping[str, TaskSettings], seed: JSON) -> dict[str, JSON]:
    """What the section `data` says of a mixture of these tasks."""
    counted = ("train", "validation", "test", "tolerate_bad_rows")
    totals: dict[str, JSON] = {
        name: sum(getattr(task.data, name) for task in tasks.values()) for name in counted
    }
    parts: JSON = {name: task.data.model_dump(mode="json") for name, task in tasks.items()}
    return {"use": DATA, **totals, "seed": seed, "tasks": parts}


def _warm_start(
    section: Mapping[str, JSON], tasks: Mapping[str, TaskSettings]
) -> Mapping[str, JSON]:
    shown = {name: task.warm_start for name, task in tasks.items() if task.warm_start}
    if not shown:
        return section
    if lacking := [name for name in tasks if name not in shown]:
        raise ValueError(
            f"tasks.{lacking[0]}.warm_start: it must be given, as those of {', '.join(shown)} are: "
            "the warm start shows all tasks. `{demonstrations: my_file:policy}` names a policy."
        )
    if section.get("demonstrations") != DEMONSTRATIONS:
        for key in section.keys() & {"demonstrations", "settings"}:
            raise ValueError(
                f"warm_start.{key}: got {section[key]}, and each task has its own, such as "
                f"tasks.{next(iter(shown))}.warm_start.{key}: leave one out."
            )
    parts: JSON = {name: one.model_dump(mode="json") for name, one in shown.items()}
    return {**section, "demonstrations": DEMONSTRATIONS, "settings": {"tasks": parts}}
