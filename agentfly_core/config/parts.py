"""Sections that name a class or function of an experiment, such as a tool, by its import path."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import isfunction
from typing import Annotated, Any, ClassVar, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from agentfly_core.config.import_path import (
    Maker,
    algorithm_path,
    at,
    construct,
    load,
    parameters_of,
    with_defaults,
)
from agentfly_core.config.reference import SpeakerReference, run_step, speaker
from agentfly_core.config.section import OPEN, Keys, Positive, Section
from agentfly_core.system.files import command_files
from agentfly_core.system.formats.json_value import JSON
from agentfly_core.system.formats.text import did_you_mean

T = TypeVar("T")
SELF = "self"
"""The word for the trained policy in `agent.frozen`."""
TEMPLATES = {
    "default": "agentfly_core.inference.templates.default:default_template",
    "hermes": "agentfly_core.inference.templates.chatml:Hermes",
    "model": "agentfly_core.inference.templates.model:ModelTemplate",
}
"""Import paths of short names of templates."""
PROGRAM = "agentfly_core.agents.program:ProgramAgent"
"""Import path of the agent `program`."""


class Part(Section):
    """The import path of a class or function, and its settings:
    `{use: "my.rewards:cites", weight: 2}`.
    """

    model_config = OPEN
    use: str

    @property
    def settings(self) -> dict[str, JSON]:
        """The settings of the class or function: all keys except `use`."""
        return dict(self.model_extra or {})

    def make(self) -> Any:
        """Import the class or function, call it with its settings, and return the result.

        Raises ValueError for an unknown setting.
        """
        return construct(load(self.use), self.settings)


class ShortForm(Section):
    """A section that may be written as the value of a single field. SHORT is this field's name.

    Experiment files may use this short form. Stored settings use it if no other field is set.
    """

    SHORT: ClassVar[str]

    @model_validator(mode="before")
    @classmethod
    def _of_short(cls, value: T) -> T | dict[str, T]:
        return value if isinstance(value, dict | cls) else {cls.SHORT: value}

    @model_serializer(mode="wrap")
    def _shortest(self, full: SerializerFunctionWrapHandler) -> Any:
        fields = type(self).model_fields
        shown = {key: value for key, value in full(self).items() if value is not None}
        # an empty mapping of a field is its default, but a part's own setting may be empty
        written = {key: value for key, value in shown.items() if value != {} or key not in fields}
        return written if {*written} - {self.SHORT} else getattr(self, self.SHORT)


class AlgorithmPart(Part):
    """An algorithm by name or import path: `{use: dapo, overlong: {longest: 512, buffer: 128}}`."""

    use: Annotated[str, AfterValidator(algorithm_path)]


class TemplatePart(Part):
    """A chat template: an import path, `default`, `hermes` or `model`. `model` also takes variables
    of the model's own template: `{use: model, enable_thinking: false}`.

    If `use` is missing, the setting `show_tools` selects `hermes`, and other settings `model`.
    """

    @model_validator(mode="before")
    @classmethod
    def _in_full(cls, value: T) -> T | dict[str, Any]:
        if not isinstance(value, dict) or not isinstance(use := value.get("use", "default"), str):
            return value
        full = {**value, "use": TEMPLATES.get(use, use)}
        # so `default` takes no settings, because their default values would choose another template
        if full["use"] == TEMPLATES["default"] and {*full} != {"use"}:
            full["use"] = TEMPLATES["hermes" if "show_tools" in full else "model"]
        if full["use"] != TEMPLATES["model"]:
            return full
        own = {"use", *parameters_of(load(full["use"]))}
        variables = {key: full.pop(key) for key in [*full] if key not in own}
        return {**full, "variables": {**full.get("variables", {}), **variables}}


class Data(Part):
    """A dataset: a function of (seed, train, validation, test, its own settings)."""

    train: Positive
    validation: Annotated[int, Field(ge=0)] = 200
    test: Positive
    tolerate_bad_rows: Annotated[int, Field(ge=0)] = 0
    seed: int | None = Field(
        default=None,
        description="seed of the problems and of held-out episodes (default: `seed`)",
    )


class ToolPart(ShortForm, Part):
    """A tool by import path, or with settings: `{use: "my_search:Search", index: wiki}`. A plain
    function in `use` is called with the settings and returns several tools.
    """

    SHORT: ClassVar[str] = "use"

    @model_serializer(mode="wrap")
    def _shortest(self, full: SerializerFunctionWrapHandler) -> Any:
        return full(self) if self.model_extra else self.use  # a setting may be null


class FlowPart(ToolPart):
    """A function of the experiment and of settings that returns the rows of a table: `{use:
    "my_flows:robustness", episodes: 50}`.
    """


class RewardPart(ShortForm):
    """A reward's weight and settings: `{weight: 0.5, timeout: 60, model: judge-7b}`. A number sets
    only the weight.

    `timeout`, `retries` and `concurrency` override the values of `@reward`. Further keys are
    settings of the reward's class. The key of this section is the reward's import path; with `use`,
    the key is the reward's name in metrics.
    """

    SHORT: ClassVar[str] = "weight"
    model_config = OPEN
    use: str | None = None
    weight: float = 1.0
    timeout: Annotated[float, Field(gt=0)] | None = None
    retries: Annotated[int, Field(ge=0)] | None = None
    concurrency: Positive | None = None


def program_files(agent: object) -> list[str]:
    """Return the `files` of an agent `program`, and the files that its `command` names."""
    if not isinstance(agent, dict) or agent.get("use") not in ("program", PROGRAM):
        return []
    words = [word for word in agent.get("command", ()) if isinstance(word, str)]
    return [*agent.get("files", ()), *command_files(words)]


class AgentPart(Section):
    """The agent and its limits: most are in tokens (`max_tokens` limits a reply), `deadline` is in
    seconds. With `use: program` the agent is a program that uses OpenAI's API.

    `stop` strings end a reply, such as `["Observation:"]`. `frozen` roles are not trained:
    `{critic: "run:demo@7", judge: "endpoint:gpt", user: "self"}`. `remembers` is the import path of
    a function that makes a memory from a step's episodes, for later episodes. Further keys are
    settings of the agent's class.
    """

    model_config = OPEN
    use: Annotated[str, AfterValidator(lambda use: PROGRAM if use == "program" else use)] = (
        "agentfly_core.agents.tool_loop:tool_loop"
    )
    system: str = ""
    max_turns: Positive = 4
    max_tokens: Positive = 256
    max_observation_tokens: Annotated[int, Field(ge=64)] = 1024
    max_model_len: Positive = 2048
    max_sampled_tokens: Positive | None = None
    deadline: Annotated[float, Field(gt=0)] = 3600.0
    stop: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    frozen: dict[str, str] = Field(default_factory=dict)
    # an unset value is not part of keys and digests
    remembers: str | None = Field(default=None, exclude_if=lambda path: path is None)

    @property
    def speakers(self) -> Mapping[str, SpeakerReference]:
        """The policies and services in `frozen` by role."""
        named = {role: speaker(who) for role, who in self.frozen.items()}
        return {role: who for role, who in named.items() if who}

    @property
    def trained(self) -> Sequence[str]:
        """The roles in `train` of a program; empty if `train` is not set."""
        return (self.model_extra or {}).get("train", ()) if self.use == PROGRAM else ()

    @property
    def sandboxed(self) -> bool:
        """Whether a program runs in the sandbox."""
        return self.use == PROGRAM and bool((self.model_extra or {}).get("sandbox"))

    @property
    def untrained(self) -> Sequence[str]:
        """The roles that the trained policy plays without being trained: those with `self` in
        `frozen`, and for a program with `train` all other roles.
        """
        alone = [role for role, who in self.frozen.items() if who == SELF]
        if trained := self.trained:
            roles = ("program", *(self.model_extra or {}).get("speakers", ()))
            alone += [one for one in roles if one not in (*trained, *self.frozen)]
        return alone

    @field_validator("frozen")
    @classmethod
    def _speak(cls, frozen: dict[str, str]) -> dict[str, str]:
        for role, who in frozen.items():
            if not role or "/" in role:
                raise ValueError(f"got the role {role!r}, expected a role without a slash")
            if who != SELF and speaker(who) is None:
                raise ValueError(
                    f"got {role}: {who!r}, expected run:NAME@STEP, endpoint:NAME of the site or "
                    "self"
                )
        return frozen


class PoolSettings(ShortForm):
    """Environments of a class: `{limit: 8, max_uses: 100, lifetime: 3600, settings: {products:
    6}}`; a number stands for the limit.

    At most `limit` instances exist. Each is used for up to `max_uses` episodes and `lifetime`
    seconds.
    """

    SHORT: ClassVar[str] = "limit"
    limit: Positive
    max_uses: Positive | None = None
    lifetime: Annotated[float, Field(gt=0)] | None = None
    settings: dict[str, Any] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OwnSettings:
    """Settings of a tool, reward, agent or environment and their place: `OwnSettings(("tools",
    "0"), "my_search:Search", {"index": "wiki"}, ("use",))`. `taken` are the keys that belong to the
    section, so no setting can have them.
    """

    keys: Keys
    path: str
    settings: Mapping[str, JSON]
    taken: Sequence[str] = ()

    @classmethod
    def beside(cls, section: BaseModel, keys: Keys, path: str) -> Self:
        """Return the keys of a section that are settings of its class or function."""
        return cls(keys, path, section.model_extra or {}, tuple(type(section).model_fields))

    def completed(self) -> dict[str, JSON]:
        """Settings with the defaults of the class; raises ValueError for unknown settings."""
        where, makes_tools = ".".join(self.keys), self.settings and "tools" in self.keys[-2:]
        with at(where):
            loaded = load(self.path)
            maker: Maker = getattr(loaded, "made_of", loaded)  # of a decorated class
            # a plain function with settings makes tools
            takes = isinstance(maker, type) or (makes_tools and isfunction(loaded))
            own = list(parameters_of(maker)) if takes else []
            if clash := [key for key in own if key in self.taken]:
                raise ValueError(
                    f"{self.path} has a setting {clash[0]!r}, but {clash[0]!r} is a key of this "
                    "section. Rename the setting in your class."
                )
        for key in self.settings:
            if key not in own:
                only = "" if takes else " Only a class has settings."
                hint = did_you_mean(key, [*own, *self.taken])
                raise ValueError(f"{where}.{key}: there is no such key.{hint}{only}")
        with at(where):
            return with_defaults(maker, self.settings) if takes else {}


def own_settings_of(sections: Mapping[str, Any], keys: Keys) -> Iterator[OwnSettings]:
    """Yield the settings of each class or function in `tools`, `rewards` and `environments`. `keys`
    are the keys of the section that contains these.
    """
    for number, tool in enumerate(sections.get("tools", ())):
        yield OwnSettings.beside(tool, (*keys, "tools", str(number)), tool.use)
    for name, reward in sections.get("rewards", {}).items():
        yield OwnSettings.beside(reward, (*keys, "rewards", name), reward.use or name)
    for path, pool in sections.get("environments", {}).items():
        yield OwnSettings((*keys, "environments", path, "settings"), path, pool.settings)


class Nano(Section):
    """The model `nano`: its tokens are learned from training problems and demonstrations.

    Matches of the regular expressions `atoms` become tokens, as digits and words do: `{atoms:
    ["[+*/-]", "red cup|blue kettle"]}`.
    """

    atoms: tuple[str, ...] = ()

    @field_validator("atoms")
    @classmethod
    def _are_regular_expressions(cls, atoms: tuple[str, ...]) -> tuple[str, ...]:
        for atom in atoms:
            try:
                # an empty match would split a text between all letters
                fits_nothing = re.compile(atom).match("")
            except re.error as error:
                raise ValueError(f"got {atom!r}, which is no regular expression: {error}") from None
            if fits_nothing:
                raise ValueError(f"got {atom!r}, which matches an empty text; require a character")
        return atoms


class WarmStart(Section):
    """Masked supervised fine-tuning on demonstrations before reinforcement learning, in resumable
    `rounds`.

    `demonstrations` has three forms. An import path names a policy (an `async def` of one
    Conversation), or a function of (problems, seed, its own settings) that returns a policy.
    `run:NAME@STEP` selects episodes of that run's steps 1 to STEP by RejectionSampling. `file:PATH`
    imitates all chats of a file, with the settings of ChatFile. The learning rate decreases from
    round to round: with 4 rounds it is 1, 3/4, 1/2 and 1/4 of `learning_rate`.
    """

    demonstrations: str
    episodes: Positive = 4096
    settings: dict[str, Any] = Field(default_factory=dict)
    rounds: Positive = 4
    epochs_per_round: Positive = 1
    batch: Positive = 64
    learning_rate: Annotated[float, Field(gt=0)] = 1e-3

    @field_validator("demonstrations")
    @classmethod
    def _names_steps(cls, where: str) -> str:
        if where.startswith("run:") and not ((policy := run_step(where)) and policy.step):
            raise ValueError(
                "expected run:NAME@STEP with a step of 1 or more, such as run:nightly-2026-11-20@40"
            )
        if where == "file:":
            raise ValueError("expected file:PATH of a data file, such as file:chats.jsonl")
        return where
