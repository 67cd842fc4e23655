"""Play episodes with the real rollout code and scripted replies."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from agentfly_core.agents.tool_loop import tool_loop
from agentfly_core.authoring import injection
from agentfly_core.authoring.author_part import kinds_needed
from agentfly_core.authoring.chat_template import ChatTemplate, Conversation
from agentfly_core.authoring.environment import Environment, ServiceFailure
from agentfly_core.authoring.reward import Reward
from agentfly_core.authoring.scoring import score
from agentfly_core.authoring.tool import Tool
from agentfly_core.inference.sampler import NoReply, Sampler
from agentfly_core.inference.scripted import Scripted, ScriptedPolicy
from agentfly_core.records.timing import Timing
from agentfly_core.records.trajectory import Ending, Message, Problem, Scored, ToolCall, Trajectory
from agentfly_core.rollout.episode import Agent, Episode, RolloutSpec
from agentfly_core.rollout.pool import Limit
from agentfly_core.rollout.resources import ResourceManager, refuse_misfits
from agentfly_core.rollout.rules import EpisodeOver, EpisodeSpec
from agentfly_core.rollout.shard import collect, require_answer
from agentfly_core.system.formats.hashing import seed
from agentfly_core.testing.letters import STOP, Letters, call_text, encode

ADD = Problem("add-41-58", "41+58?", {"answer": "99"})
ScriptReply = str | ToolCall | Sequence[ToolCall]
MOST_TURNS = 100


def rollout_spec(
    *tools: Tool,
    rewards: Sequence[Reward] = (),
    agent: Agent = tool_loop,
    system: str = "",
    max_turns: int = 4,
    max_tokens: int = 100,
    max_observation_tokens: int = 200,
    max_model_len: int = 1000,
    max_sampled_tokens: int = sys.maxsize,
    deadline: float = 60.0,
    stop: Sequence[str] = (),
    limits: Mapping[type[Environment], Limit | int] | None = None,
    template: ChatTemplate | None = None,
) -> RolloutSpec:
    """Make a RolloutSpec for tests: the settings of episodes. By default, each letter is a token.

    `rewards` must contain only rewards with an environment as a parameter. For all other rewards,
    use `score_of` after the episode. `limits` maps each environment class to its maximum number of
    instances. By default, this number is 1 for each class that a tool or a reward needs. A value of
    `limits` can also contain arguments for the environment's constructor:
    `{Game: Limit(1, settings={"highest": 10})}`.

    Raises ValueError if two tools or two rewards share a name, or if `limits` lacks the class of a
    needed environment.
    """
    needed = kinds_needed([*tools, *rewards])
    given = limits if limits is not None else dict.fromkeys(needed, Limit(1))
    bounds = {
        kind: Limit(limit) if isinstance(limit, int) else limit for kind, limit in given.items()
    }
    refuse_misfits(tools, rewards, bounds)
    return RolloutSpec(
        template=template or Letters(),
        tools=tools,
        rewards=tuple(rewards),
        agent=agent,
        system=system,
        max_turns=max_turns,
        max_tokens=max_tokens,
        max_observation_tokens=max_observation_tokens,
        max_model_len=max_model_len,
        max_sampled_tokens=max_sampled_tokens,
        deadline=deadline,
        stop=tuple(stop),
        limits=bounds,
    )


def scripted(policy: ScriptedPolicy) -> Scripted:
    """Make a sampler that returns the replies of the function `policy`. Each letter is a token."""
    return Scripted(encode, STOP, policy, _text_of)


def saying(*replies: str) -> ScriptedPolicy:
    """Make a policy that returns the given texts in order, one text in each turn.

    After the last text, the policy raises NoReply.
    """

    async def policy(conversation: Conversation) -> str:
        if (turn := conversation.turn) >= len(replies):
            raise NoReply(
                f"The agent requests reply {turn + 1}, but the list has {len(replies)}: add the "
                f"missing replies, or set max_turns={len(replies)} in rollout_spec."
            )
        return replies[turn]

    return policy


def episode_specs(*problems: Problem, chains: int = 1) -> list[EpisodeSpec]:
    """Make the inputs of `play_all`: `chains` training episodes for each problem.

    The training step of all episodes is 7.
    """
    return [
        EpisodeSpec(problem, chain, 7, "train", 1.0, seed(0, 7, problem.id, chain), chains)
        for problem in problems
        for chain in range(chains)
    ]


def unwatched(trajectory: Trajectory) -> None:
    """Ignore a finished episode. This is the default of `watch` in `play_all`."""


async def play_all(
    episodes: Sequence[EpisodeSpec],
    spec: RolloutSpec,
    sampler: Sampler,
    watch: Callable[[Trajectory], None] = unwatched,
) -> tuple[list[Trajectory], list[Timing], dict[str, float]]:
    """Play episodes in new environments. Return trajectories, timings and metrics.

    An episode has a trajectory for each speaker (participant with its own conversation). After
    each episode, `watch` is called with the trajectory of the speaker that gave the answer. If no
    speaker gave an answer, `watch` gets the trajectory of the speaker with the agent's name.
    """
    async with ResourceManager(spec.limits) as resources:
        return await collect(episodes, spec, sampler, watch, resources)


async def play(
    replies: Sequence[ScriptReply] | ScriptedPolicy,
    *tools: Tool,
    problem: Problem = ADD,
    spec: RolloutSpec | None = None,
) -> Trajectory:
    """Play an episode with real tools, and with scripted replies.

        await play([ToolCall("look_up", {"country": "Chile"}), "Santiago"], look_up, problem=chile)

    `replies` is a list or a policy. A reply in a list is a text, a tool call, or a list of tool
    calls. A policy is an `async def` that gets a `Conversation` and returns a reply.

    By default, the maximum number of turns is the length of the list, or 100 for a policy. To set
    limits, rewards or an agent, pass `spec=rollout_spec(...)`. Returns the trajectory of the
    speaker that gave the answer. If no speaker gave an answer, returns the trajectory of the
    speaker with the agent's name. Errors of the agent are raised.
    """
    policy = replies if callable(replies) else saying(*map(_text, replies))
    turns = MOST_TURNS if callable(replies) else len(replies)
    rules = spec or rollout_spec(*tools, max_turns=turns, max_tokens=10_000, max_model_len=100_000)
    agent, name = rules.agent, injection.name(rules.agent)
    errors, ended = list[Exception](), list[Trajectory]()

    async def watched(episode: Episode) -> Ending:
        try:
            ending = await agent(episode)
            require_answer(f"The agent {name}", ending, episode)
            return ending
        except (EpisodeOver, ServiceFailure):
            raise
        except Exception as error:  # an author's agent may raise any error
            errors.append(error)
            raise

    # trajectories contain the agent's name
    watched.__name__ = name
    rules = replace(rules, agent=watched)
    await play_all(episode_specs(problem), rules, scripted(policy), ended.append)
    if errors:
        raise errors[0]
    return ended[0]


async def score_of(trajectory: Trajectory, reward: Reward) -> Scored:
    """Score a trajectory with a reward.

    The field `reward` of the result is a number, or an `Unscored` with the reason if the reward
    fails.
    """
    (scored,) = await score([trajectory], {reward: 1.0})
    return scored


def _text(reply: ScriptReply) -> str:
    if isinstance(reply, str):
        return reply
    return "".join(map(call_text, [reply] if isinstance(reply, ToolCall) else reply))


def _text_of(message: Message) -> str:
    return message.content + _text([call for call in message.calls if isinstance(call, ToolCall)])
