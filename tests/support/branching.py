"""Episodes of scripted replies with given entropies, which fork by `rollout.branching`."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.authoring.tool import Tool, tool
from agentfly_core.config.episodes import Branching, Rollout
from agentfly_core.inference.sampler import Request
from agentfly_core.inference.scripted import Scripted
from agentfly_core.pipeline.playing import fork_rule, of_step
from agentfly_core.records.trajectory import Problem, Sampled, ToolCall, Trajectory
from agentfly_core.rollout.episode import RolloutSpec
from agentfly_core.rollout.history.branching import ForkRule
from agentfly_core.testing.episodes import play_all, rollout_spec
from agentfly_core.testing.letters import STOP, call_text, encode
from tests.support.counting import Count

VOCABULARY = 100
CALLS = 3
EXECUTED: list[int] = []
"""The numbers of all executed calls."""
Entropy = Callable[[Conversation], float]
"""The entropy of each token of a reply."""


@tool
async def add(number: int, *, count: Count) -> str:
    """Add."""
    EXECUTED.append(number)
    count.count += number
    return str(count.count)


class Uncertain(Scripted):
    """Up to CALLS calls of a tool with numbers that follow from seeds, with given entropies."""

    def __init__(self, entropy: Entropy, tool: str = "add", early: bool = False) -> None:
        async def policy(conversation: Conversation) -> str:
            turn, seed = conversation.turn, conversation.seed
            if turn == CALLS or (early and seed % 4 == 0):
                return f"{seed}"
            return call_text(ToolCall(tool, {"number": seed % 1000}))

        super().__init__(encode, STOP, policy)
        self.entropy = entropy

    async def sample(self, request: Request) -> Sampled:
        sampled = await super().sample(request)
        if not request.params.entropies:
            return sampled
        entropies = (self.entropy(request.conversation),) * len(sampled.tokens)
        return replace(sampled, entropies=entropies)


def spike(turn: int) -> Entropy:
    """Entropy 4 in a reply and 1 in the others."""
    return lambda conversation: 4.0 if conversation.turn == turn else 1.0


Mode = Literal["entropy", "threshold", "random"]


def rule(mode: Mode = "entropy", alpha: float = 0.5, beta: float = 0.2) -> ForkRule:
    """The decision of these settings."""
    return fork_rule(Branching(mode=mode, alpha=alpha, beta=beta), VOCABULARY)


SPIKES = rule(alpha=0.0, beta=10.0)
"""Forks where the entropy rises by 3, and nowhere else."""


def rules(by: ForkRule | None, *tools: Tool, max_turns: int = CALLS + 1) -> RolloutSpec:
    """The rules of episodes with these tools, by default `add`."""
    spec = rollout_spec(
        *(tools or (add,)), max_turns=max_turns, limits=None if tools else {Count: 40}
    )
    return replace(spec, branching=by)


def numbered(count: int) -> list[Problem]:
    """Problems p000, p001, ..."""
    return [Problem(f"p{number:03}", f"{number}?") for number in range(count)]


async def leaves(
    sampler: Scripted,
    spec: RolloutSpec,
    total: int = 2,
    init: int = 1,
    problems: int = 1,
) -> list[Trajectory]:
    """Play a step of numbered problems."""
    rollout = Rollout(branching=Branching(total=total, init=init))
    specs = of_step(rollout, (0, 7), numbered(problems), 7, greedy=False)
    return (await play_all(specs, spec, sampler))[0]


def fork_turns(played: Sequence[Trajectory]) -> list[int]:
    """The number of shared turns of each fork."""
    return [one.branch.turns for one in played if one.branch]
