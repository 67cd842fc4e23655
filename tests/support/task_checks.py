"""Checks for every task: its oracle solves every problem, and a policy that does not read solves
few.
"""

import random
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import partial

from transformers import PreTrainedTokenizerBase

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.authoring.environment import Environment
from agentfly_core.authoring.reward import Reward
from agentfly_core.authoring.tool import Tool
from agentfly_core.inference.scripted import Scripted, ScriptedPolicy
from agentfly_core.inference.templates.chatml import Hermes
from agentfly_core.records.trajectory import Ending, Message, Problem, Score, ToolCall, Trajectory
from agentfly_core.system.formats.json_value import JSON
from agentfly_core.testing.episodes import episode_specs, play_all, rollout_spec


async def played(
    problems: Sequence[Problem],
    policy: ScriptedPolicy,
    tools: Sequence[Tool],
    tokenizer: PreTrainedTokenizerBase,
    kinds: Sequence[type[Environment]] = (),
    rewards: Sequence[Reward] = (),
    max_turns: int = 6,
) -> list[Trajectory]:
    """Play an episode of each problem; `rewards` are rewards with an environment among `kinds`."""
    rules = rollout_spec(
        *tools,
        rewards=rewards,
        template=Hermes(tokenizer, show_tools=False),
        limits=dict.fromkeys(kinds, 8),
        max_turns=max_turns,
        max_tokens=400,
        max_observation_tokens=1024,
        max_model_len=8000,
    )
    encode = partial(tokenizer.encode, add_special_tokens=False)
    sampler = Scripted(encode, rules.template.stop_tokens[0], policy)
    trajectories = (await play_all(episode_specs(*problems), rules, sampler))[0]
    assert not [one.error for one in trajectories if one.ending is Ending.FAILED]
    return trajectories


async def success(trajectories: Sequence[Trajectory], reward: Reward) -> float:
    """The mean of a reward that needs no environment."""
    scores = [await reward.score(trajectory, {}) for trajectory in trajectories]
    values = [score.value for score in scores if isinstance(score, Score)]
    assert len(values) == len(trajectories)
    return sum(values) / len(values)


def observed_success(trajectories: Sequence[Trajectory], reward: Reward) -> float:
    """The mean of a reward that was observed during the episodes."""
    scores = [trajectory.observed[reward.name] for trajectory in trajectories]
    values = [score.value for score in scores if isinstance(score, Score)]
    assert len(values) == len(trajectories)
    return sum(values) / len(values)


async def wanderer(conversation: Conversation) -> Message:
    """Call a random tool: an enum argument gets one of its choices, any other a word or a two-word
    name from the messages.
    """
    draw = random.Random(conversation.seed)
    text = " ".join(item.content for item in conversation.messages)
    seen = re.findall(r"\w+", text) + re.findall(r"[A-Z]\w+ [A-Z]\w+", text)
    tool = draw.choice(conversation.tools)
    properties, required = tool.parameters["properties"], tool.parameters["required"]
    assert isinstance(properties, Mapping) and isinstance(required, list)
    arguments: dict[str, JSON] = {}
    for name in map(str, required):
        schema = properties[name]
        assert isinstance(schema, Mapping)
        choices = schema.get("enum", seen)
        assert isinstance(choices, list)
        arguments[name] = draw.choice(choices)
    return Message("assistant", "", (ToolCall(tool.name, arguments),))


def best_constant(problems: Sequence[Problem]) -> float:
    """The share of the problems that their most frequent answer solves."""
    [(_, count)] = Counter(problem.facts["answer"] for problem in problems).most_common(1)
    return count / len(problems)


def best_unread(seen: Sequence[Problem], problems: Sequence[Problem], fact: str) -> float:
    """The share that is solved by the answer which was most frequent, among problems that were
    seen, for questions with the same fact.
    """
    answers = defaultdict[str, Counter[str]](Counter)
    for problem in seen:
        answers[problem.facts[fact]][problem.facts["answer"]] += 1
    best = {kind: counted.most_common(1)[0][0] for kind, counted in answers.items()}
    right = [best[problem.facts[fact]] == problem.facts["answer"] for problem in problems]
    return sum(right) / len(right)
