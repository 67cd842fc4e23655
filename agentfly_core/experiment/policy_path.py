"""Load scripted policies by import path. A scripted policy is a function that returns the replies
in place of a model.
"""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.config.import_path import at, check_settings, construct, load
from agentfly_core.inference.scripted import ScriptedPolicy
from agentfly_core.records.trajectory import Message, Problem
from agentfly_core.system.formats.json_value import JSON

GIVEN = ("problems", "seed")


def policy_at(
    path: str,
    settings: Mapping[str, JSON],
    problems: Sequence[Problem],
    seed: int,
    spoilt: float | None = None,
) -> ScriptedPolicy:
    """Load the scripted policy at an import path.

    The path names a policy, or a function that is called with problems, seed and settings and
    returns a policy. If the function has a setting `spoilt` (the share of deliberate mistakes), the
    argument `spoilt` replaces this setting unless it is None. Raises ValueError if the path names
    any other object, or if the settings do not fit the function.
    """
    check_policy(path, settings)
    loaded = load(path)
    if is_policy(loaded):
        return loaded
    if spoilt is not None and "spoilt" in inspect.signature(loaded).parameters:
        settings = {**settings, "spoilt": spoilt}
    made = construct(loaded, settings, {"problems": problems, "seed": seed})
    if is_policy(made):
        return made
    raise ValueError(
        f"{path} returned {made!r:.80}, expected an `async def` function that takes a "
        "Conversation and returns the reply as text or a Message."
    )


def of_tasks(
    problems: Sequence[Problem],
    seed: int,
    tasks: Mapping[str, Mapping[str, Any]],
    spoilt: float | None = None,
) -> ScriptedPolicy:
    """Return a policy that plays each task of a mixture with the task's own policy.

    `tasks` has the import path and the settings of each task's policy: `{"sums": {"demonstrations":
    "my_sums:adds", "settings": {}}}`. Some policies have a setting `spoilt`, the share of
    deliberate mistakes. The argument `spoilt` replaces this setting unless it is None.
    """
    policies = {}
    for name, shown in tasks.items():
        with at(f"tasks.{name}.warm_start"):
            own = [problem for problem in problems if problem.task == name]
            path, settings = shown["demonstrations"], shown["settings"]
            policies[name] = policy_at(path, settings, own, seed, spoilt)

    async def policy(conversation: Conversation) -> str | Message:
        return await policies[conversation.problem.task](conversation)

    return policy


def check_policy(path: str, settings: Mapping[str, JSON]) -> None:
    """Check that an import path names a policy, or a function that returns a policy.

    Raises ValueError if the path names another object, or if the settings do not fit the function.
    """
    loaded = load(path)
    if not is_policy(loaded):
        if inspect.isfunction(loaded) and "problems" not in inspect.signature(loaded).parameters:
            raise ValueError(
                f"{path} is not a policy. Expected an `async def` function that takes a "
                "Conversation (is `async` missing?), or a function that takes problems, seed and "
                "settings and returns a policy."
            )
        check_settings(loaded, settings, GIVEN)
    elif settings:
        raise ValueError(
            f"{path} is a policy, so it takes no settings, got {', '.join(settings)}. Remove the "
            "settings, or name a function that returns a policy. Its parameters are problems, "
            "seed and these settings."
        )


def is_policy(value: object) -> TypeGuard[ScriptedPolicy]:
    """Whether a value is a scripted policy.

    Such a policy is an `async def`, or an object with an async `__call__`.
    """
    # a class with an async __call__ is not a policy itself: it is called to make one
    if isinstance(value, type):
        return False
    called = getattr(type(value), "__call__", None)  # noqa: B004
    return inspect.iscoroutinefunction(value) or inspect.iscoroutinefunction(called)
