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
"""The value in `agent.frozen` that means the trained policy."""
TEMPLATES = {
    "default": "agentfly_core.inference.templates.default:default_template",
    "hermes": "agentfly_core.inference.templates.chatml:Hermes",
    "model": "agentfly_core.inference.templates.model:ModelTemplate",
}
"""The import path for each short name of a chat template."""
PROGRAM = "agentfly_core.agents.program:ProgramAgent"
"""The import path of the agent with the short name `program`."""


class Part(Section):
    """The import path of a class or function, and the settings of this class or function:
    `{use: "my.rewards:cites", weight: 2}`.
    """

    model_config = OPEN
    use: str

    @property
    def settings(self) -> dict[str, JSON]:
        """The settings of the class or function: all keys except `use`."""
        return dict(self.model_extra or {})

    def make(self, **given: Any) -> Any:
        """Import the class or function, and call it with its settings and the arguments `given`.

        Returns the result of the call. Raises ValueError for an unknown setting.
        """
        return construct(load(self.use), self.settings, given)


class ShortForm(Section):
    """A section that can be written as the value of one field, such as `0.5` for a reward.

    The class variable SHORT has the name of this field. Stored settings use the short form if only
    this field is set.
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
        # an empty mapping in a field is a default, but a setting of the named class may be empty
        written = {key: value for key, value in shown.items() if value != {} or key not in fields}
        return written if {*written} - {self.SHORT} else getattr(self, self.SHORT)


class AlgorithmPart(Part):
    """An algorithm and its settings: `{use: dapo, overlong: {longest: 512, buffer: 128}}`.

    `use` is the short name or the import path of the algorithm.
    """

    use: Annotated[str, AfterValidator(algorithm_path)]


class TemplatePart(Part):
    """A chat template. `use` is an import path, `default`, `hermes` (ChatML) or `model`.

    `model` is the model's own template. The variables of this template are further keys: `{use:
    model, enable_thinking: false}`. The model determines whether `default` means `hermes` or
    `model`. A section without `use` selects `hermes` if it has the key `show_tools`, `default` if
    it is empty, and `model` if it has only other keys.
    """

    @model_validator(mode="before")
    @classmethod
    def _in_full(cls, value: T) -> T | dict[str, Any]:
        if not isinstance(value, dict) or not isinstance(use := value.get("use", "default"), str):
            return value
        full = {**value, "use": TEMPLATES.get(use, use)}
        # `default` takes no settings, because stored default values would choose another template
        if full["use"] == TEMPLATES["default"] and {*full} != {"use"}:
            full["use"] = TEMPLATES["hermes" if "show_tools" in full else "model"]
        if full["use"] != TEMPLATES["model"]:
            return full
        own = {"use", *parameters_of(load(full["use"]))}
        if not isinstance(given := full.get("variables", {}), dict):
            return full
        variables = {key: full.pop(key) for key in [*full] if key not in own}
        return {**full, "variables": {**given, **variables}}


class Data(Part):
    """A dataset. The function in `use` gets the seed, the sizes of the splits and its settings."""

    train: Positive
    validation: Annotated[int, Field(ge=0)] = 200
    test: Positive
    tolerate_bad_rows: Annotated[int, Field(ge=0)] = 0
    seed: int | None = Field(
        default=None,
        description="seed of the problems and of held-out episodes (default: `seed`)",
    )


class ToolPart(ShortForm, Part):
    """A tool: an import path, or an import path with settings: `{use: "my_search:Search", index:
    wiki}`.

    If `use` names a plain function, the function is called with the settings and returns tools.
    """

    SHORT: ClassVar[str] = "use"

    @model_serializer(mode="wrap")
    def _shortest(self, full: SerializerFunctionWrapHandler) -> Any:
        return full(self) if self.model_extra else self.use  # a setting may be null


class FlowPart(ToolPart):
    """A flow, i.e. a function that computes a table for an experiment.

    In `{use: "my_flows:robustness", episodes: 50}`, `use` is the import path of the function. The
    function is called with the experiment and the other keys (`episodes`), and returns table rows.
    """


class RewardPart(ShortForm):
    """The weight and the settings of a reward: `{weight: 0.5, timeout: 60, model: judge-7b}`. The
    short form is a number, which is the weight.

    `timeout`, `retries` and `concurrency` replace the values in the decorator `@reward`. Further
    keys are settings of the reward's class. In `rewards`, a section's key is the reward's import
    path. If `use` contains the import path instead, the key is the reward's name in metrics.
    """

    SHORT: ClassVar[str] = "weight"
    model_config = OPEN
    use: str | None = None
    weight: float = 1.0
    timeout: Annotated[float, Field(gt=0)] | None = None
    retries: Annotated[int, Field(ge=0)] | None = None
    concurrency: Positive | None = None


def program_files(agent: object) -> list[str]:
    """Return the files in `files` and `command` if the agent has `use: program`, else no files."""
    if not isinstance(agent, dict) or agent.get("use") not in ("program", PROGRAM):
        return []
    command, files = (agent.get(key, ()) for key in ("command", "files"))
    if not isinstance(command, list | tuple) or not isinstance(files, list | tuple):
        return []  # this fault is reported with its key when the agent is made
    return [*files, *command_files([word for word in command if isinstance(word, str)])]


class AgentPart(Section):
    """The agent and its limits. With `use: program`, the agent is a program that uses OpenAI's API.

    - `max_tokens`: the largest number of tokens in a reply
    - `deadline`: the time limit of an episode in seconds
    - `stop`: texts that end a reply, such as `["Observation:"]`
    - `frozen`: the policies of the roles (kinds of speakers) whose replies are not trained on:
      `{critic: "run:demo@7", judge: "endpoint:gpt", user: "self"}`. `self` is the trained policy.
    - `remembers`: the import path of a function that makes a memory from the episodes of a step.
      Later episodes can read the memory.

    Further keys are settings of the agent's class.
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
        """The policy or chat service of each untrained role (kind of speaker) in `frozen`. Roles
        with the value `self` (the trained policy) are left out.
        """
        named = {role: speaker(who) for role, who in self.frozen.items()}
        return {role: who for role, who in named.items() if who}

    @property
    def trained(self) -> Sequence[str]:
        """The roles (kinds of speakers) in the setting `train` of an agent with `use: program`.

        The result is empty for any other agent. It is also empty if `train` is not set.
        """
        return (self.model_extra or {}).get("train", ()) if self.use == PROGRAM else ()

    @property
    def sandboxed(self) -> bool:
        """Whether the agent is a program that runs in the sandbox."""
        return self.use == PROGRAM and bool((self.model_extra or {}).get("sandbox"))

    @property
    def untrained(self) -> Sequence[str]:
        """The roles that the trained policy plays without learning from their replies.

        These are the roles with the value `self` in the setting `frozen`. If an agent with `use:
        program` has the setting `train`, all roles outside of `train` and `frozen` are added.
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
                    f"got {role}: {who!r}, expected run:NAME@STEP, self (the trained policy), or "
                    "endpoint:NAME (a chat service of the site)"
                )
        return frozen


class PoolSettings(ShortForm):
    """The limits and settings of an environment class: `{limit: 8, max_uses: 100, lifetime: 3600,
    settings: {products: 6}}`. The short form is a number, which is the limit.

    At most `limit` environments of the class exist at the same time. Each environment is used for
    at most `max_uses` episodes and `lifetime` seconds.
    """

    SHORT: ClassVar[str] = "limit"
    limit: Positive
    max_uses: Positive | None = None
    lifetime: Annotated[float, Field(gt=0)] | None = None
    settings: dict[str, Any] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OwnSettings:
    """The settings of the class or function of a tool, a reward, an agent or an environment:
    `OwnSettings(("tools", "0"), "my_search:Search", {"index": "wiki"}, ("use",))`.

    - `keys`: the keys that lead to the section in the experiment's settings
    - `path`: the import path of the class or function
    - `taken`: the names of the section's fields, such as `use`. No setting may have these names.
    """

    keys: Keys
    path: str
    settings: Mapping[str, JSON]
    taken: Sequence[str] = ()

    @classmethod
    def beside(cls, section: BaseModel, keys: Keys, path: str) -> Self:
        """Collect the settings in a section: all keys except its class's fields, such as `use`."""
        return cls(keys, path, section.model_extra or {}, tuple(type(section).model_fields))

    def completed(self) -> dict[str, JSON]:
        """Return the settings with the defaults of the class or function added.

        Raises ValueError if a setting is unknown or wrong.
        """
        where, makes_tools = ".".join(self.keys), self.settings and "tools" in self.keys[-2:]
        with at(where):
            loaded = load(self.path)
            maker: Maker = getattr(loaded, "made_of", loaded)  # the class below a decorator
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
    """Yield the settings of each class or function in tools, rewards and environments.

    `keys` is the path of `sections` in the settings: () or, for a task, ("tasks", NAME).
    """
    for number, tool in enumerate(sections.get("tools", ())):
        yield OwnSettings.beside(tool, (*keys, "tools", str(number)), tool.use)
    for name, reward in sections.get("rewards", {}).items():
        yield OwnSettings.beside(reward, (*keys, "rewards", name), reward.use or name)
    for path, pool in sections.get("environments", {}).items():
        yield OwnSettings((*keys, "environments", path, "settings"), path, pool.settings)


class Nano(Section):
    """The tokenizer of `model: nano`. It is learned from training problems and demonstrations.

    Digits, most words, and texts that match a regular expression in `atoms` are tokenized
    separately from the text around them: `{atoms: ["[+*/-]", "red cup|blue kettle"]}`.
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
                raise ValueError(f"got {atom!r}, expected a regular expression: {error}") from None
            if fits_nothing:
                raise ValueError(
                    f"got {atom!r}, expected a regular expression that cannot match an empty text"
                )
        return atoms


class WarmStart(Section):
    """The warm start: supervised fine-tuning on demonstrations before reinforcement learning.

    `demonstrations` is one of these texts:

    - the import path of a policy (an `async def` function of a Conversation), or of a function that
      makes a policy from problems, seed and `settings`
    - `run:NAME@STEP`: `RejectionSampling(**settings)` selects episodes of steps 1 to STEP of a run
    - `file:PATH`: `ChatFile(**settings)` reads all chats of a file

    Training has `rounds` rounds of `epochs_per_round` epochs. An interrupted run continues after
    the last finished round. With 4 rounds, the learning rates of the rounds are 1, 3/4, 1/2 and 1/4
    of `learning_rate`.
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
