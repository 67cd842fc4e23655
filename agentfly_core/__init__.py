"""AgentFly: reinforcement learning of language-model agents, as a pipeline.

This module has the names for authors of tools, rewards, environments, datasets and agents, and for
scripts that use the pipeline. Each name of this module is imported at its first use.
`agentfly_core.rl` has the names for algorithms, and `agentfly_core.sandbox` has the names for
running code.
"""

TYPE_CHECKING = False  # what typing's is; processes that import little need no typing
if TYPE_CHECKING:
    from agentfly_core.authoring.chat_template import ChatTemplate as ChatTemplate
    from agentfly_core.authoring.chat_template import Conversation as Conversation
    from agentfly_core.authoring.chat_template import ToolSchema as ToolSchema
    from agentfly_core.authoring.environment import Environment as Environment
    from agentfly_core.authoring.environment import ServiceFailure as ServiceFailure
    from agentfly_core.authoring.reward import reward as reward
    from agentfly_core.authoring.tool import StepResult as StepResult
    from agentfly_core.authoring.tool import ToolError as ToolError
    from agentfly_core.authoring.tool import tool as tool
    from agentfly_core.experiment.experiment import Experiment as Experiment
    from agentfly_core.inference.sampler import HiddenStates as HiddenStates
    from agentfly_core.pipeline.loop.library import evaluate as evaluate
    from agentfly_core.pipeline.loop.library import load_experiment as load_experiment
    from agentfly_core.pipeline.loop.library import play as play
    from agentfly_core.pipeline.loop.library import prepare as prepare
    from agentfly_core.pipeline.loop.library import train as train
    from agentfly_core.pipeline.produce import produce as produce
    from agentfly_core.records.dataset import BadRow as BadRow
    from agentfly_core.records.generated_dataset import generated as generated
    from agentfly_core.records.messages import call_text as call_text
    from agentfly_core.records.messages import reply_text as reply_text
    from agentfly_core.records.trajectory import BadCall as BadCall
    from agentfly_core.records.trajectory import Ending as Ending
    from agentfly_core.records.trajectory import Examples as Examples
    from agentfly_core.records.trajectory import Group as Group
    from agentfly_core.records.trajectory import Message as Message
    from agentfly_core.records.trajectory import Observation as Observation
    from agentfly_core.records.trajectory import Problem as Problem
    from agentfly_core.records.trajectory import Score as Score
    from agentfly_core.records.trajectory import Scored as Scored
    from agentfly_core.records.trajectory import Team as Team
    from agentfly_core.records.trajectory import ToolCall as ToolCall
    from agentfly_core.records.trajectory import Trajectory as Trajectory
    from agentfly_core.records.trajectory import Turn as Turn
    from agentfly_core.records.trajectory import Unscored as Unscored
    from agentfly_core.rollout.child_process import Child as Child
    from agentfly_core.rollout.episode import Episode as Episode
    from agentfly_core.rollout.history.timeline import Reply as Reply
    from agentfly_core.rollout.rules import EpisodeOver as EpisodeOver
    from agentfly_core.rollout.rules import StartAgain as StartAgain
    from agentfly_core.rollout.speaker import Context as Context
    from agentfly_core.rollout.speaker import Speaker as Speaker
    from agentfly_core.store.artifact import ArtifactKey as ArtifactKey
    from agentfly_core.system.formats.hashing import digest as digest
    from agentfly_core.system.module_search import require_package as require_package

_HOMES = {
    name: f"agentfly_core.{module}"
    for module, names in {
        "authoring.chat_template": "ChatTemplate Conversation ToolSchema",
        "authoring.environment": "Environment ServiceFailure",
        "authoring.reward": "reward",
        "authoring.tool": "StepResult ToolError tool",
        "experiment.experiment": "Experiment",
        "inference.sampler": "HiddenStates",
        "pipeline.loop.library": "evaluate load_experiment play prepare train",
        "pipeline.produce": "produce",
        "records.dataset": "BadRow",
        "records.generated_dataset": "generated",
        "records.messages": "call_text reply_text",
        "records.trajectory": "BadCall Ending Examples Group Message Observation Problem Score "
        "Scored Team ToolCall Trajectory Turn Unscored",
        "rollout.child_process": "Child",
        "rollout.episode": "Episode",
        "rollout.rules": "EpisodeOver StartAgain",
        "rollout.speaker": "Context Speaker",
        "rollout.history.timeline": "Reply",
        "store.artifact": "ArtifactKey",
        "system.formats.hashing": "digest",
        "system.module_search": "require_package",
    }.items()
    for name in names.split()
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
