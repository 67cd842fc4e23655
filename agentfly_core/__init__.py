"""AgentFly: reinforcement learning of language-model agents, as a pipeline.

These are the names for authors of tools, rewards, environments, datasets and agents, and for
scripts that use the pipeline; see `agentfly_core.rl` for algorithms and `agentfly_core.sandbox` for
running code. Each is imported at its first use.
"""

TYPE_CHECKING = False  # what typing's is; processes that import little need no typing
if TYPE_CHECKING:
    from agentfly_core.authoring.chat_template import ChatTemplate, Conversation, ToolSchema
    from agentfly_core.authoring.environment import Environment, ServiceFailure
    from agentfly_core.authoring.reward import reward
    from agentfly_core.authoring.tool import StepResult, ToolError, tool
    from agentfly_core.pipeline.loop.library import (
        evaluate,
        load_experiment,
        play,
        prepare,
        train,
    )
    from agentfly_core.records.dataset import BadRow
    from agentfly_core.records.generated_dataset import generated
    from agentfly_core.records.messages import call_text, reply_text
    from agentfly_core.records.trajectory import (
        BadCall,
        Ending,
        Examples,
        Group,
        Message,
        Observation,
        Problem,
        Score,
        ToolCall,
        Trajectory,
        Turn,
        Unscored,
    )
    from agentfly_core.rollout.child_process import Child
    from agentfly_core.rollout.episode import Episode
    from agentfly_core.rollout.speaker import Context, Speaker
    from agentfly_core.system.formats.hashing import digest
    from agentfly_core.system.module_search import require_package

_RECORDS = "agentfly_core.records.trajectory"
_TEMPLATES = "agentfly_core.authoring.chat_template"
_LIBRARY = "agentfly_core.pipeline.loop.library"
_HOMES = {
    "BadCall": _RECORDS,
    "BadRow": "agentfly_core.records.dataset",
    "ChatTemplate": _TEMPLATES,
    "Child": "agentfly_core.rollout.child_process",
    "Context": "agentfly_core.rollout.speaker",
    "Conversation": _TEMPLATES,
    "Ending": _RECORDS,
    "Environment": "agentfly_core.authoring.environment",
    "Episode": "agentfly_core.rollout.episode",
    "Examples": _RECORDS,
    "Group": _RECORDS,
    "Message": _RECORDS,
    "Observation": _RECORDS,
    "Problem": _RECORDS,
    "Score": _RECORDS,
    "ServiceFailure": "agentfly_core.authoring.environment",
    "Speaker": "agentfly_core.rollout.speaker",
    "StepResult": "agentfly_core.authoring.tool",
    "ToolCall": _RECORDS,
    "ToolError": "agentfly_core.authoring.tool",
    "ToolSchema": _TEMPLATES,
    "Trajectory": _RECORDS,
    "Turn": _RECORDS,
    "Unscored": _RECORDS,
    "call_text": "agentfly_core.records.messages",
    "digest": "agentfly_core.system.formats.hashing",
    "evaluate": _LIBRARY,
    "generated": "agentfly_core.records.generated_dataset",
    "load_experiment": _LIBRARY,
    "play": _LIBRARY,
    "prepare": _LIBRARY,
    "reply_text": "agentfly_core.records.messages",
    "require_package": "agentfly_core.system.module_search",
    "reward": "agentfly_core.authoring.reward",
    "tool": "agentfly_core.authoring.tool",
    "train": _LIBRARY,
}
__all__ = [
    "BadCall",
    "BadRow",
    "ChatTemplate",
    "Child",
    "Context",
    "Conversation",
    "Ending",
    "Environment",
    "Episode",
    "Examples",
    "Group",
    "Message",
    "Observation",
    "Problem",
    "Score",
    "ServiceFailure",
    "Speaker",
    "StepResult",
    "ToolCall",
    "ToolError",
    "ToolSchema",
    "Trajectory",
    "Turn",
    "Unscored",
    "call_text",
    "digest",
    "evaluate",
    "generated",
    "load_experiment",
    "play",
    "prepare",
    "reply_text",
    "require_package",
    "reward",
    "tool",
    "train",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
