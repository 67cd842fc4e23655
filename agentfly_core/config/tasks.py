"""The tasks of a mixture (several tasks in one experiment), and the settings that are derived from
these tasks.
"""

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
"""The name in `Scored.rewards` under which each task of a mixture stores the reward that decides
success.
"""
TASK = "task"
"""The label of the success rates by task, which are reported for a mixture. Success is also
reported for each value of the fact (an entry of `Problem.facts`) that `evaluate.by` names.
"""
SINGLE = "single"
"""The name of the only task in an experiment without `tasks`. Datasets and episodes contain this
name. The name of the experiment is not used, because experiments with equal settings share datasets
and episodes.
"""


def task_key(task: str, key: str) -> str:
    """Return the key of a setting of a task: `tasks.shop.data` in a mixture, else `data`."""
    return key if task == SINGLE else f"tasks.{task}.{key}"


def _not_single(name: str) -> str:
    if name == SINGLE:
        raise ValueError(
            f"got {SINGLE!r}, which is reserved for experiments without `tasks`; rename the task"
        )
    return name


TaskName = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$"), AfterValidator(_not_single)
]


class TaskLimits(Section):
    """The settings of `agent` that differ in this task: `{system: "You shop.", max_turns: 8}`.

    These settings replace the settings in the section `agent` of the experiment.
    """

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
    """The demonstrations of a task. The fields have the same meaning as in `WarmStart`."""

    demonstrations: str
    settings: dict[str, Any] = Field(default_factory=dict)


class TaskSettings(Section):
    """A task of a mixture: `{weight: 2, data: {use: ..., train: 2048, test: 200}, tools: [...],
    rewards: {...}, agent: {max_turns: 6}}`.

    `weight` determines how many of a step's problems come from this task. `tools`, `rewards`,
    `environments` and the limits in `agent` replace the experiment's settings. `goal` is the reward
    that decides success. A task with several rewards must set `goal`.
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
        """The sections of this task that replace sections of the experiment."""
        sections = {name: getattr(self, name) for name in ("tools", "rewards", "environments")}
        return {name: section for name, section in sections.items() if section is not None}


_TASKS = TypeAdapter(dict[TaskName, TaskSettings])


def quotas(weights: Mapping[str, float], count: int) -> dict[str, int]:
    """Divide `count` in proportion to weights: `quotas({"sums": 2, "shop": 1}, 8)` is `{"sums": 5,
    "shop": 3}`.

    All shares are rounded down. Then the shares with the largest remainders are increased by 1
    until the sum is `count`. If remainders are equal, the first share is increased first.
    """
    exact = {name: count * weight / sum(weights.values()) for name, weight in weights.items()}
    counts = {name: int(share) for name, share in exact.items()}
    missing = count - sum(counts.values())
    for name in sorted(exact, key=lambda name: counts[name] - exact[name])[:missing]:
        counts[name] += 1
    return counts


def mixed(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Add `data` and `warm_start.demonstrations` to the settings of a mixture of several tasks.

    Both are computed from `tasks`. Demonstrations are added only if `warm_start` is set in the
    experiment and in its tasks. Returns the new settings. Raises ValueError if the experiment
    itself sets data or demonstrations, or if only some of the tasks set `warm_start`.
    """
    try:
        tasks = _TASKS.validate_python(settings["tasks"])
    except ValidationError:  # this fault is reported with its key when the whole file is read
        whole = {"data": {"use": DATA, "train": 1, "test": 1}, "rewards": {}, **settings}
        if isinstance(shown := settings.get("warm_start"), Mapping):
            whole["warm_start"] = {"demonstrations": DEMONSTRATIONS, **shown}
        return whole
    data, warm_start = settings.get("data") or {}, settings.get("warm_start")
    if not isinstance(data, Mapping):  # this fault is reported with its key, too
        return {"rewards": {}, **settings}
    if data.get("use") != DATA and (beside := data.keys() - {"seed"}):
        raise ValueError(
            f"data.{min(beside)}: each of the tasks {', '.join(tasks)} has its own data. Set "
            f"tasks.{next(iter(tasks))}.data.{min(beside)} instead; only data.seed is shared."
        )
    mixture = {"rewards": {}, **settings, "data": data_of(tasks, data.get("seed"))}
    if warm_start and isinstance(warm_start, Mapping):
        mixture["warm_start"] = _warm_start(warm_start, tasks)
    return mixture


def datasets(data: Mapping[str, Any]) -> list[str]:
    """Return the import paths of the dataset functions in the section `data`.

    An experiment with a single task has one path. In a mixture (several tasks in one experiment),
    the first path names the function that mixes the tasks. The other paths name the dataset
    functions of the tasks.
    """
    parts = data.get("tasks", {}).values() if data["use"] == DATA else ()
    return [data["use"], *(part["use"] for part in parts)]


def data_of(tasks: Mapping[str, TaskSettings], seed: JSON) -> dict[str, JSON]:
    """Return the section `data` of an experiment that mixes `tasks`. `seed` becomes `data.seed`."""
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
            f"tasks.{lacking[0]}.warm_start is missing, but warm_start is set for "
            f"{', '.join(shown)}. Set it for each task: `{{demonstrations: my_file:policy}}`, "
            "where my_file:policy is the import path of a policy."
        )
    if section.get("demonstrations") != DEMONSTRATIONS:
        for key in section.keys() & {"demonstrations", "settings"}:
            raise ValueError(
                f"warm_start.{key}: got {section[key]}, but each task sets its own "
                f"(tasks.{next(iter(shown))}.warm_start.{key}). Remove warm_start.{key}."
            )
    parts: JSON = {name: one.model_dump(mode="json") for name, one in shown.items()}
    return {**section, "demonstrations": DEMONSTRATIONS, "settings": {"tasks": parts}}
