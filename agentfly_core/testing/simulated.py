"""A simulated policy: its replies and its errors depend only on the visible conversation."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.authoring.reward import Reward
from agentfly_core.authoring.scoring import score
from agentfly_core.records.trajectory import Problem
from agentfly_core.rollout.episode import RolloutSpec
from agentfly_core.system.formats import hashing
from agentfly_core.testing.episodes import episode_specs, play_all, scripted, unwatched

_policy: ContextVar["Simulated | None"] = ContextVar("policy", default=None)


@dataclass(frozen=True, slots=True)
class Visible:
    """The argument of a skill: `Visible("main", ("Reply with a plan.", "41+58?"), draw)`.

    A skill is a function that returns a reply of a simulated policy. `speaker` is the speaker's
    name. `texts` has the texts of all messages, the newest last. `draw` is a random generator that
    is seeded with the speaker and the texts.
    """

    speaker: str
    texts: Sequence[str]
    draw: random.Random


Skill = Callable[[Visible], str | None]
"""A function that returns a reply, or None if it cannot reply to the conversation."""


@dataclass
class Simulated:
    """A policy for `play`, made of functions (skills). A skill returns None if it does not apply.
    The first skill that applies gives the reply:

        def adds(visible: Visible) -> str | None:
            match = re.fullmatch(r"(\\d+)\\+(\\d+)\\?", visible.texts[-1])
            return str(int(match[1]) + int(match[2])) if match else None

        await play(Simulated([adds], error_rate=0.1, mistake=lambda visible, reply: "0"), ...)

    A skill must compute its reply only from the texts, without the problem's facts. To check this,
    wrap the problems with the function `counted`: `facts_read` then counts how often a skill read
    facts. With the probability `error_rate`, the function `mistake` replaces a reply. Equal
    conversations get equal replies and equal errors. Several agents can therefore be compared
    under the same errors.
    """

    skills: Sequence[Skill]
    error_rate: float = 0.0
    mistake: Callable[[Visible, str], str] = lambda visible, reply: "I do not know."
    seed: int = 0
    facts_read: int = field(default=0, init=False)

    async def __call__(self, conversation: Conversation) -> str:
        texts = tuple(message.content for message in conversation.messages)
        draw = random.Random(hashing.seed(self.seed, conversation.speaker, *texts))
        # the error is drawn before the skills run, because they may use the generator, too
        visible, errs = Visible(conversation.speaker, texts, draw), draw.random() < self.error_rate
        before = _policy.set(self)
        try:
            replies = (skill(visible) for skill in self.skills)
            reply = next((one for one in replies if one is not None), "I do not know.")
            return self.mistake(visible, reply) if errs else reply
        finally:
            _policy.reset(before)


def counted(problem: Problem) -> Problem:
    """Return a copy of the problem with facts that count how often they are read.

    If a `Simulated` policy reads the facts, its field `facts_read` increases.
    """
    return replace(problem, facts=_CountedFacts(problem.facts))


class _CountedFacts(Mapping[str, Any]):
    """Facts of a problem that count how often a simulated policy reads their names and values.

    Each call of `__getitem__`, `__iter__` or `__len__` increases the count. All other methods of a
    Mapping call these three methods.
    """

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self._facts = facts

    def __getitem__(self, name: str) -> Any:
        _count()
        return self._facts[name]

    def __iter__(self) -> Iterator[str]:
        _count()
        return iter(self._facts)

    def __len__(self) -> int:
        _count()
        return len(self._facts)


def _count() -> None:
    if policy := _policy.get():
        policy.facts_read += 1


async def scores_of_policy(
    policy: Simulated, problems: Sequence[Problem], spec: RolloutSpec, rewards: Sequence[Reward]
) -> dict[str, Mapping[str, float]]:
    """Play an episode of each problem with a policy, and return the rewards by problem id.

        {"add-41-58": {"exact": 1.0, "planning": 1.0, "planning/calls": 3.0}}

    Each problem is wrapped by `counted`, so `policy.facts_read` counts how often the policy read
    the facts of the problem, which include the right answer. A reward with a parameter of the type
    `Team` gets the trajectories of all speakers of the episode, such as a planner and an executor.
    The dictionary of an episode is empty if the episode failed or got no score.
    """
    specs = episode_specs(*map(counted, problems))
    trajectories, *_ = await play_all(specs, spec, scripted(policy), unwatched)
    scored = await score(trajectories, dict.fromkeys(rewards, 1.0))
    return {
        trajectory.problem.id: one.rewards
        for trajectory, one in zip(trajectories, scored, strict=True)
    }
