"""The settings that define an experiment. The settings of the machine are in site.py.

A file `conf/NAME.yaml` needs only the settings that differ from the defaults.
"""

from collections.abc import Iterator, Mapping
from math import ceil
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import Field, model_validator

from agentfly_core.config.episodes import Evaluate, Rollout
from agentfly_core.config.health_signs import SIGNS, Sign
from agentfly_core.config.parts import (
    AgentPart,
    AlgorithmPart,
    Data,
    FlowPart,
    Nano,
    OwnSettings,
    PoolSettings,
    RewardPart,
    TemplatePart,
    ToolPart,
    WarmStart,
    own_settings_of,
    program_files,
)
from agentfly_core.config.promotion import HeldOutDataset, Promotion
from agentfly_core.config.reference import chat_file
from agentfly_core.config.section import BY_NAME, RESUMABLE, Positive, Section, Share
from agentfly_core.config.tasks import (
    GOAL,
    SINGLE,
    TASK,
    TaskName,
    TaskSettings,
    data_of,
    mixed,
    quotas,
    task_key,
)
from agentfly_core.system.formats import hashing

T = TypeVar("T")
Decay = Annotated[float, Field(ge=0.0, lt=1.0)]
FlowName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]


class Adapter(Section):
    """Train a low-rank adapter of linear layers instead of the model's weights (LoRA, arXiv
    2106.09685).

    A layer with weights W computes (W + alpha / rank * B A) x. W is frozen, A has `rank` rows, and
    B starts as 0. `targets` has names of layers, such as [q_proj, v_proj]. `all-linear` means all
    linear layers except the output projection.
    """

    rank: Annotated[int, Field(ge=1, le=512)] = 16
    alpha: Positive = 32
    targets: Literal["all-linear"] | Annotated[tuple[str, ...], Field(min_length=1)] = "all-linear"


class Update(Section):
    """The update of a step. It consists of `epochs` x `mini_batches` optimizer steps of AdamW.

    The learner state is stored every `learner_every` steps. The newest `keep_learner` states and
    the weights of the newest `keep_policies` policies (0: all policies) are kept. With
    `share_prefixes`, a prefix of several episodes, such as a prompt, is computed only once. The
    results then differ by rounding errors. `update: none` means `{weights: false}`: a step samples
    and scores episodes and updates the memory (`agent.remembers`), but does not train.
    """

    # an unset value is not part of keys and digests
    weights: bool = Field(
        default=True,
        exclude_if=lambda weights: weights is True,
        description="whether the learner changes the weights",
    )

    learning_rate: Annotated[float, Field(gt=0)] = 1e-6
    lr_scheduler_type: Literal["constant", "linear", "cosine"] = Field(
        default="constant", description="how the rate changes over the steps, after the warm-up"
    )
    warmup_steps: Annotated[int, Field(ge=0)] = Field(
        default=0, description="steps over which the rate rises to `learning_rate`"
    )
    epochs: Positive = 1
    mini_batches: Positive = 1
    betas: tuple[Decay, Decay] = (0.9, 0.95)
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0
    optimizer_state: Literal["fresh", "parent"] = Field(
        default="fresh",
        description="optimizer state of step 1: fresh, or from the run that `model` names",
    )
    old_logprobs: Literal["learner", "sampler"] = "learner"
    share_prefixes: bool = True
    learner_every: Positive = Field(default=1, json_schema_extra=RESUMABLE)
    keep_learner: Positive = Field(default=2, json_schema_extra=RESUMABLE)
    keep_policies: Annotated[int, Field(ge=0)] = Field(default=0, json_schema_extra=RESUMABLE)

    @property
    def decays(self) -> bool:
        """Whether the learning rate depends on the total number of steps (the setting `steps`)."""
        return self.lr_scheduler_type != "constant"


class OrderPosition(Section):
    """A position in the order of problems: `{epoch: 2, problem: 512}`.

    Each epoch uses every training problem once, in a different order. `problem` is the number of
    problems of the epoch that are already used.
    """

    epoch: Annotated[int, Field(ge=0)] = 0
    problem: Annotated[int, Field(ge=0)] = 0


class Night(Section):
    """The number of a nightly run, and the start position in the problems of each task:
    `{number: 12, tasks: {single: {epoch: 2, problem: 512}}}`. Sampling seeds depend on `number`.
    """

    number: Positive
    tasks: dict[str, OrderPosition] = Field(default_factory=dict)

    def of(self, task: str) -> OrderPosition:
        """Return a task's start position in this run. A new task starts at epoch 0, problem 0."""
        return self.tasks.get(task, OrderPosition())


class Fork(Section):
    """Continue from a step of another run: `{run: quickstart-1f2e3d4c, step: 7}`.

    In this example, the fork begins with step 8, from the policy and the learner state after step 7
    of the other run. The order of problems and the seeds also continue as in the other run. With
    `optimizer_state: fresh`, the optimizer state is new.
    """

    run: str
    step: Positive
    optimizer_state: Literal["kept", "fresh"] = "kept"


class Gates(Section):
    """Limits on shares of failed and unscored episodes. 1 failed and 2 unscored always pass."""

    failed: Share = Field(default=0.10, json_schema_extra=RESUMABLE)
    unscored: Share = Field(default=0.05, json_schema_extra=RESUMABLE)


class Settings(Section):
    """The settings of an experiment. Runs with equal settings are the same run.

    `code_files` lists the data files that the author's code reads. If the agent is a program,
    `code_files` also lists the program's files. The computed field `code` has the digests of the
    author's modules for each stage: `{"rollout": {"my_tools": "9f2c..."}}`.
    """

    model: str
    nano: Nano = Nano()
    dtype: Literal["float32", "bfloat16"] = "float32"
    template: Annotated[TemplatePart, BY_NAME] = TemplatePart(use="default")
    data: Data
    agent: AgentPart = AgentPart()
    tools: tuple[ToolPart, ...] = ()
    rewards: dict[str, RewardPart]
    environments: dict[str, PoolSettings] = Field(default_factory=dict)
    tasks: dict[TaskName, TaskSettings] = Field(default_factory=dict)
    flows: dict[FlowName, FlowPart] = Field(
        default_factory=dict,
        json_schema_extra=RESUMABLE,
        exclude_if=lambda flows: not flows,
    )
    warm_start: WarmStart | None = None
    adapter: Adapter | None = None
    algorithm: Annotated[AlgorithmPart, BY_NAME] = AlgorithmPart(use="grpo")
    update: Update = Update()
    rollout: Rollout = Rollout()
    evaluate: Evaluate = Evaluate()
    gates: Gates = Gates()
    health: dict[str, Sign | None] = Field(default=SIGNS, json_schema_extra=RESUMABLE)
    promotion: Promotion = Field(default=Promotion(), json_schema_extra=RESUMABLE)
    steps: Annotated[int, Field(ge=0)] = Field(json_schema_extra=RESUMABLE)
    log_trajectories_every: Positive = Field(default=5, json_schema_extra=RESUMABLE)
    seed: int = 0
    night: Night | None = None
    fork: Fork | None = None
    code_files: tuple[str, ...] = ()
    code: dict[str, dict[str, str]] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _of_tasks(cls, settings: T) -> T | dict[str, Any]:
        return mixed(settings) if isinstance(settings, dict) and settings.get("tasks") else settings

    @model_validator(mode="before")
    @classmethod
    def _counts_the_files_of_a_program(cls, settings: T) -> T | dict[str, Any]:
        if not isinstance(settings, dict) or not (files := program_files(settings.get("agent"))):
            return settings
        if not isinstance(own := settings.get("code_files", ()), list | tuple):
            return settings
        return {**settings, "code_files": [*dict.fromkeys([*own, *files])]}

    @model_validator(mode="after")
    def _goal_is_a_reward(self) -> Self:
        for name, one in self.each.items():
            if not one.rewards and (self.steps or self.tasks):
                raise ValueError(
                    f"{task_key(name, 'rewards')}: got none, expected at least one import path "
                    "with its weight. Only a warm start with steps=0 needs no reward."
                )
            goal = one.evaluate.goal
            if goal not in one.rewards and (goal or len(one.rewards) > 1):
                key = task_key(name, "goal") if self.tasks else "evaluate.goal"
                raise ValueError(
                    f"{key}: got {goal!r}, expected the reward that decides success "
                    f"(rewards: {', '.join(one.rewards) or 'none'}). A problem is solved if this "
                    "reward is at least 1. To decide by several rewards, add a reward with weight "
                    "0 that combines them."
                )
        all_own = all(task.goal or task.rewards for task in self.tasks.values())
        if self.tasks and self.evaluate.goal and all_own:
            raise ValueError(
                f"evaluate.goal: got {self.evaluate.goal!r}, but each task has its own goal or "
                "rewards. Remove evaluate.goal, and set `goal` in each task"
            )
        if self.tasks and self.evaluate.by == TASK:
            raise ValueError(
                f"evaluate.by: got {TASK!r}, but success by task is always reported in an "
                "experiment with tasks. Name a fact of the problems, or remove evaluate.by"
            )
        return self

    @model_validator(mode="after")
    def _tasks_fit(self) -> Self:
        if self.tasks and (key := next(iter(self.further_datasets), None)):
            raise ValueError(
                f"{key}: an experiment with `tasks` cannot have further datasets; remove {key}"
            )
        for name, one in self.each.items():
            if not one.rollout.problems:
                raise ValueError(
                    f"tasks.{name}.weight: got {self.tasks[name].weight:g}, so the task gets none "
                    f"of the {self.rollout.problems} problems of a step. Raise this weight or "
                    "rollout.problems"
                )
            if one.agent.max_model_len > self.agent.max_model_len:
                raise ValueError(
                    f"tasks.{name}.agent.max_model_len: got {one.agent.max_model_len}, but "
                    f"agent.max_model_len is {self.agent.max_model_len}; raise agent.max_model_len"
                )
        return self

    @model_validator(mode="after")
    def _steps_fit(self) -> Self:
        if self.tasks and self.warm_start and chat_file(self.warm_start.demonstrations):
            raise ValueError(
                f"warm_start.demonstrations: got {self.warm_start.demonstrations}, but the "
                "chats of a file have no task. Run this warm start in an experiment without "
                "`tasks`. Then set `model` of this experiment to its policy: model=run:NAME"
            )
        if self.steps == 0 and self.warm_start is None and self.fork is None:
            raise ValueError(
                "steps: got 0, and without a warm_start this run trains nothing; raise steps, or "
                "set warm_start"
            )
        if self.fork and self.steps <= self.fork.step:
            raise ValueError(
                f"steps: got {self.steps}, but the fork continues after step {self.fork.step} "
                "(fork.step); set steps to a larger number"
            )
        return self

    @property
    def sandboxed(self) -> bool:
        """Whether an agent is a program that runs in the sandbox."""
        return any(own.agent.sandboxed for own in self.each.values())

    @property
    def each(self) -> Mapping[str, Self]:
        """The settings of each task, by name. Without `tasks`, the result is `{"single": self}`.

        In a task's settings, `rollout.problems` is the number of this task's problems in a step.
        """
        if not self.tasks:
            return {SINGLE: self}
        problems = self.quotas(self.rollout.problems)
        by_task = {}
        for name, task in self.tasks.items():
            goal = task.goal if task.goal or task.rewards else self.evaluate.goal
            sections = {
                **task.own,
                "data": task.data,
                "agent": self.agent.model_copy(update=task.agent.model_dump()),
                "rollout": self.rollout.model_copy(update={"problems": problems[name]}),
                "evaluate": self.evaluate.model_copy(update={"goal": goal}),
                "tasks": {},
            }
            by_task[name] = self.model_copy(update=sections)
        return by_task

    def quotas(self, count: int) -> dict[str, int]:
        """Divide `count` problems among the tasks by weight: `{"sums": 5, "shop": 3}`."""
        weights = {name: task.weight for name, task in self.tasks.items()}
        return quotas(weights or {SINGLE: 1.0}, count)

    @property
    def start_step(self) -> int:
        """The step number of the initial policy: 0, or `fork.step` if the run is a fork."""
        return self.fork.step if self.fork else 0

    @property
    def further_datasets(self) -> dict[str, HeldOutDataset]:
        """The datasets used only for evaluation, by key: `{"promotion.datasets.hard": ...}`."""
        promotion, evaluate = self.promotion.datasets, self.evaluate.datasets
        datasets = {f"promotion.datasets.{name}": one for name, one in promotion.items()}
        return datasets | {f"evaluate.datasets.{name}": one for name, one in evaluate.items()}

    @property
    def own_steps(self) -> range:
        """The steps that this run does: from `start_step` + 1 to the setting `steps`."""
        return range(self.start_step + 1, self.steps + 1)

    @property
    def inherits_learner(self) -> bool:
        """Whether the first step continues with the learner state of another run."""
        if not self.update.weights:
            return False
        if self.fork:
            return self.fork.optimizer_state == "kept"
        return self.update.optimizer_state == "parent"

    @property
    def goal(self) -> str:
        """The key of the reward that decides success. With the setting `tasks`, the key is "goal".
        Otherwise it is `evaluate.goal` if set, else the first key in `rewards`, else "".
        """
        return GOAL if self.tasks else self.evaluate.goal or next(iter(self.rewards), "")

    def own_settings(self) -> Iterator[OwnSettings]:
        """Yield the settings for the agent's class, and for each tool, reward and environment."""
        yield OwnSettings.beside(self.agent, ("agent",), self.agent.use)
        own = {"tools": self.tools, "rewards": self.rewards, "environments": self.environments}
        yield from own_settings_of(own, ())
        for name, task in self.tasks.items():
            yield from own_settings_of(task.own, ("tasks", name))

    @property
    def data_seed(self) -> int:
        """The seed of the dataset: `data.seed`, or `seed` if `data.seed` is not set."""
        return self.seed if self.data.seed is None else self.data.seed

    @property
    def of_data(self) -> Self:
        """A copy with `seed` set to `data_seed`, for the store keys of datasets and evaluations."""
        data = self.data.model_copy(update={"seed": None})
        return self.model_copy(update={"seed": self.data_seed, "data": data})

    def with_code(self, code: Mapping[str, Mapping[str, str]]) -> Self:
        """Return these settings with new code digests: `{"rollout": {"my_tools": "9f2c..."}}`."""
        return self.model_copy(update={"code": {stage: {**code[stage]} for stage in code}})

    def on(self, dataset: HeldOutDataset) -> Self:
        """Return a copy of these settings with `dataset` in place of the section `data`."""
        seed = self.data.seed if dataset.seed is None else dataset.seed
        return self.model_copy(update={"data": dataset.data.model_copy(update={"seed": seed})})

    def with_fresh_problems(self, earlier: int) -> Self:
        """Return these settings for a confirmation (second comparison). The new `data.seed` depends
        on `earlier`, the number of earlier confirmations. The number of test problems is multiplied
        by `promotion.confirmation.times`. In a mixture, this applies to the data of each task.
        """

        def fresh(data: Data) -> Data:
            own = self.data_seed if data.seed is None else data.seed
            seed = hashing.seed(own, "confirmation", earlier) % 2**31
            test = ceil(data.test * self.promotion.confirmation.times)
            return data.model_copy(update={"seed": seed, "test": test})

        if not self.tasks:
            return self.model_copy(update={"data": fresh(self.data)})
        tasks = {
            name: task.model_copy(update={"data": fresh(task.data)})
            for name, task in self.tasks.items()
        }
        data = Data.model_validate(data_of(tasks, self.data.seed))
        return self.model_copy(update={"tasks": tasks, "data": data})

    def seeds_of(self, step: int) -> tuple[int | str, ...]:
        """Inputs of a step's seeds: `(seed, 7)`, or `(seed, "night", 3, 7)` in nightly run 3."""
        night = () if self.night is None else ("night", self.night.number)
        return (self.seed, *night, step)

    @property
    def digest(self) -> str:
        """The digest that identifies the settings of a run. The setting `flows` is left out."""
        return hashing.digest(self.model_dump(mode="json", exclude={"flows"}))
