"""How a person names a policy: the same words for all commands that take one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agentfly_core.config.parts import ENDPOINT
from agentfly_core.models.known import require
from agentfly_core.system.formats.text import nearest

OF_RUN = re.compile(r"(?:run:)?([A-Za-z0-9][A-Za-z0-9._-]*)(@\d+)?")
IMPORT_PATH = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
NO_PATHS = ("nano:", "package:")
WORDS = ("oracle", "random", "base")
TAKEN = (
    "A policy is base (the experiment's model), run:NAME, run:NAME@STEP, a policy.json, "
    "endpoint:NAME (a chat service of the site), a model's folder, nano:NAME, package:NAME, or an "
    "id of the Hugging Face hub, which has a slash, such as Qwen/Qwen2.5-3B-Instruct; for "
    "`agentfly play` also oracle, random, or my_file:policy, your async function"
)


@dataclass(frozen=True, slots=True)
class RunPolicy:
    """The policy of a run's step, or its last: `RunPolicy("run:mine@7")`."""

    where: str


@dataclass(frozen=True, slots=True)
class PolicyFile:
    """The policy that a file points to: `PolicyFile("results/quickstart/policy.json")`."""

    path: str


@dataclass(frozen=True, slots=True)
class ModelPolicy:
    """A model as it is: `ModelPolicy("Qwen/Qwen2.5-3B-Instruct")`."""

    model: str


@dataclass(frozen=True, slots=True)
class ScriptPolicy:
    """A function that gives the replies: `ScriptPolicy("my_file:policy")`."""

    path: str


@dataclass(frozen=True, slots=True)
class EndpointPolicy:
    """A chat service that the site names: `EndpointPolicy("judge")`."""

    name: str


@dataclass(frozen=True, slots=True)
class NamedPolicy:
    """One that each experiment has: `NamedPolicy("oracle")`, see WORDS."""

    word: str


PolicyReference = RunPolicy | PolicyFile | ModelPolicy | ScriptPolicy | EndpointPolicy | NamedPolicy


def policy_reference(text: str, runs: Sequence[str]) -> PolicyReference:
    """What a person's word for a policy names; `runs` are the names that need no `run:`.

    Raises ValueError for what names no policy, without asking the hub.
    """
    if text in WORDS:
        return NamedPolicy(text)
    of_run = OF_RUN.fullmatch(text)
    if text.startswith("run:") or (of_run and of_run[1] in runs):
        return RunPolicy(f"run:{text.removeprefix('run:')}")
    if text.startswith(ENDPOINT):
        return EndpointPolicy(text.removeprefix(ENDPOINT))
    if text.endswith(".json"):
        return PolicyFile(text)
    if IMPORT_PATH.fullmatch(text) and not text.startswith(NO_PATHS):
        return ScriptPolicy(text)
    if not ({"/", ":"} & {*text} or Path(text).is_dir()):
        hint = nearest(text.partition("@")[0], [*WORDS, *runs])
        raise ValueError(f"There is no policy {text!r}.{hint} {TAKEN}.")
    require(text)
    return ModelPolicy(text)


def run_policy(text: str) -> str:
    """`run:NAME` or `run:NAME@STEP` for NAME and NAME@STEP, with or without `run:`, for commands
    that take the policies of runs alone; raises ValueError for anything else.
    """
    if not OF_RUN.fullmatch(text):
        raise ValueError(
            f"policy: got {text!r}, expected run:NAME (its last) or run:NAME@STEP with a step's "
            "number, 0 is the start."
        )
    return f"run:{text.removeprefix('run:')}"
