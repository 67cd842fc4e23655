"""The record of an episode. It contains the sampled tokens, so text is never tokenized again.

The type of each token span sets the loss mask. `Given` spans are tokens that the model read. Their
loss is 0. `Sampled` spans are trained, unless `Sampled.trained` or `Trajectory.trains` is False.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Literal, Self

from agentfly_core.config.tasks import SINGLE
from agentfly_core.system.formats.text import without_thoughts

Finish = Literal["stop", "length", "stop_string"]
"""What ended a reply: a stop token, the token limit, or a stop string."""
Role = Literal["train", "baseline", "evaluation", "demonstration"]
LARGEST = 1e15
"""Largest absolute reward. Squared gradients grow with the reward, and must fit in float32."""
USABLE = f"a finite number, from {-LARGEST:g} to {LARGEST:g}"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A parsed call: `ToolCall("calculator", {"expression": "41+58"})`.

    `lenient` is True if the call deviated from the template's format. `id` is the id that the model
    wrote, if the format has ids.
    """

    name: str
    arguments: Mapping[str, Any]
    lenient: bool = field(default=False, compare=False, repr=False)
    id: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class BadCall:
    """An unreadable call: `BadCall('{"name": "calc', "unterminated string at character 14")`."""

    text: str
    fault: str


@dataclass(frozen=True, slots=True)
class Message:
    """A chat message: `Message("user", "What is 41+58?")`. A reply also has its parsed calls.

    `reasoning` is the reasoning text of a reply, without the template's tags. `cut` means that the
    token limit ended the reply, so its text may be incomplete. `rewritten` means that the template
    renders the reply with other tokens than the policy sampled.
    """

    role: Literal["system", "user", "assistant"]
    content: str
    calls: tuple[ToolCall | BadCall, ...] = ()
    cut: bool = field(default=False, compare=False, repr=False)
    reasoning: str = ""
    rewritten: bool = field(default=False, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Observation:
    """A tool's answer, or the message about a wrong call: `Observation("calculator", "99")`.

    `reward` is the reward that the tool gives for this call. This reward is added to `Turn.reward`,
    and is hidden from the model.
    """

    tool: str
    content: str
    error: bool = False
    reward: float | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Given:
    """Tokens that the model read: `Given((1, 87, 203, 4))`. These tokens are never trained."""

    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Sampled:
    """Tokens of a reply, with the log-probability of each token at the sampling temperature.

    `Sampled((57, 12, 2), (-0.11, -1.9, -0.002), policy_version=6, finish="stop")`. If the agent
    requests entropies, `entropies` has the entropy of each token's distribution in nats (with vLLM,
    an estimate). `trained` is False for tokens that the policy did not choose, such as a forced end
    of reasoning. Raises ValueError if `logprobs` or non-empty `entropies` have a wrong length.
    """

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    policy_version: int
    finish: Finish
    entropies: tuple[float, ...] = ()
    trained: bool = True

    def __post_init__(self) -> None:
        if len(self.tokens) != len(self.logprobs):
            raise ValueError(
                f"Sampled has {len(self.tokens)} tokens and {len(self.logprobs)} "
                "log-probabilities; a sampler must return one log-probability for each token."
            )
        if self.entropies and len(self.entropies) != len(self.tokens):
            raise ValueError(
                f"Sampled has {len(self.tokens)} tokens and {len(self.entropies)} entropies; a "
                "sampler must return one entropy for each token, or none."
            )

    def part(self, begin: int, end: int, trained: bool) -> Self:
        """Return a span of the tokens from index `begin` to `end` - 1, with loss mask `trained`.

        The new span keeps `finish` if it includes the last token. Otherwise, `finish` is "stop".
        """
        return replace(
            self,
            tokens=self.tokens[begin:end],
            logprobs=self.logprobs[begin:end],
            entropies=self.entropies[begin:end],
            # "length" and "stop_string" describe the end of the whole span only
            finish=self.finish if end == len(self.tokens) else "stop",
            trained=trained,
        )


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn: the messages that the model newly read, and its reply.

        Turn(
            read=(Observation("calculator", "99"),),
            given=Given((1, 87, 203)),
            reply=Message("assistant", "The sum is 99."),
            sampled=(Sampled((57, 12, 2), (-0.11, -1.9, -0.002), 6, "stop"),),
        )

    - `given`: the tokens added to the context before the reply
    - `sampled`: the tokens of the reply; empty if a chat service replies for an untrained role
    - `context`: the index of the token sequence to which this turn belongs
    - `call`: the index of the reply in the episode: 0, 1, ...
    - `temperature`: the temperature of this reply, or None for the experiment's temperature
    - `state`: the results of `Environment.state_key` before the reply, joined by spaces
    - `reward`: the sum of the rewards of the tools that the reply called, or None
    - `pictures`: SHA-256 digests of the pictures that the model read
    - `continues`: the index of the conversation's previous turn, if this turn starts a new context
    """

    read: tuple[Message | Observation, ...]
    given: Given
    reply: Message
    sampled: tuple[Sampled, ...]
    context: int = 0
    call: int = 0
    temperature: float | None = None
    state: str = ""
    reward: float | None = None
    pictures: tuple[str, ...] = ()
    continues: int | None = None

    @property
    def cut(self) -> bool:
        """Whether the token limit ended the reply."""
        return self.reply.cut or any(span.finish == "length" for span in self.sampled[-1:])


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem: `Problem("add-41-58", "What is 41+58?", {"answer": "99"})`.

    `facts` has data for rewards. `task` is the name of the problem's task if the experiment has
    several tasks. If a problem begins with several messages, they are in `messages`, and `prompt`
    is the text of the last user message. `tools` has the names of the tools of this problem, or is
    None for all tools of the experiment.
    """

    id: str
    prompt: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    task: str = SINGLE
    messages: tuple[Message | Observation, ...] = ()
    tools: tuple[str, ...] | None = None


def of_task(problem: Problem, task: str) -> Problem:
    """Assign a problem to a task. If there are several tasks, put the task's name before the id."""
    if task == SINGLE:
        return problem
    return replace(problem, id=f"{task}/{problem.id}", task=task)


def tag(problem: Problem, fact: str, setting: str) -> str:
    """Return the entry `fact` of `problem.facts` as text. Problems are grouped by this text.

    Raises ValueError if the entry is missing. The error message contains `setting`, the name of the
    setting that needs the entry.
    """
    if fact not in problem.facts:
        raise ValueError(
            f"{setting}: the problem {problem.id!r} has no fact {fact!r} (its facts: "
            f"{', '.join(problem.facts) or 'none'}). Add {fact!r} to the facts of each problem, or "
            f"remove {setting}."
        )
    value = problem.facts[fact]
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


class Ending(StrEnum):
    """Why an episode ended.

    With AGENT_ERROR, the agent failed after its first reply. The episode is scored. With FAILED, a
    service failed, or the agent failed before its first reply. The episode is unscored.
    """

    TERMINAL = "terminal"
    NO_TOOL_CALLS = "no_tool_calls"
    MAX_TURNS = "max_turns"
    MAX_MODEL_LEN = "max_model_len"
    MAX_SAMPLED_TOKENS = "max_sampled_tokens"
    AGENT_ERROR = "agent_error"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Score:
    """A reward's value: `Score(0.5, parts={"format": 1.0, "tag": 0.0}, per_turn=(0.0, 0.5))`.

    `by_speaker` has separate values for speakers: `Score(1.0, by_speaker={"planner": 0.5,
    "worker/1": 0.0, "worker/2": 1.0})`. Advantages then compare worker/2 only with worker/2 in the
    problem's other episodes. Workers that are missing in `by_speaker` are compared with each other.
    """

    value: float
    parts: Mapping[str, float] = field(default_factory=dict)
    per_turn: tuple[float, ...] = ()
    by_speaker: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Examples:
    """Examples of answers for a reward: `Examples(right=("99",), wrong=("", "98"))`.

    Answers in `right` must earn the largest reward, and answers in `wrong` must earn less.
    """

    right: tuple[str, ...]
    wrong: tuple[str, ...]


def is_usable(value: float) -> bool:
    """Whether a value may be a reward: a finite number from -1e15 to 1e15 (see LARGEST)."""
    try:
        return hasattr(value, "__float__") and abs(float(value)) <= LARGEST
    except OverflowError:  # for example an int of 400 digits
        return False


@dataclass(frozen=True, slots=True)
class Unscored:
    """A missing reward and its reason: `Unscored("exact: TimeoutError")`.

    Training skips unscored episodes. The reward is not replaced by 0.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class Branch:
    """A fork: the trajectory begins with the first `turns` turns of the trajectory `parent`."""

    parent: str
    turns: int


@dataclass(frozen=True, slots=True)
class Trajectory:
    """The record of one speaker's tokens in an episode.

    - `chain`: the index of the episode among the episodes of the problem: 0, 1, ...
    - `turns`: the turns in the order of time
    - `agent`: the speaker's name: `searcher` for the first of its role, `searcher/2` for the second
    - `closing`: the answers of tools after the last reply
    - `observed`: the value of each reward that reads an environment, by the reward's name
    - `error`: the error message, if the ending is FAILED or AGENT_ERROR
    - `answered`: the answer that the agent set
    - `policy`: who replies for an untrained role: `run:demo@7`, `endpoint:gpt` or `self`; else ""
    """

    id: str
    episode: str
    problem: Problem
    group: str
    chain: int
    agent: str
    role: Role
    turns: tuple[Turn, ...]
    closing: tuple[Observation, ...]
    ending: Ending
    error: str | None
    observed: Mapping[str, Score | Unscored]
    seed: int
    branch: Branch | None = None
    answered: str | None = None
    policy: str = ""

    @property
    def speaker(self) -> str:
        """The speaker's role: `searcher` for the agent `searcher/2`."""
        return self.agent.partition("/")[0]

    @property
    def answer(self) -> str | None:
        """The answer of the episode, or None.

        The answer that the agent set has priority. Otherwise, the answer is the output of the tool
        that ended the episode, or the final reply without tool calls. A reply that was cut off by
        the token limit is not an answer.
        """
        if self.answered is not None:
            return self.answered
        if self.ending is Ending.TERMINAL and self.closing:
            return self.closing[-1].content
        # a cut reply lacks its end, so its text may contain a wrong answer
        if self.ending is Ending.NO_TOOL_CALLS and self.turns and not self.turns[-1].cut:
            return without_thoughts(self.turns[-1].reply.content)
        return None

    @property
    def observations(self) -> tuple[Observation, ...]:
        """All answers of tools in order, including answers that the model did not read."""
        read = [item for turn in self.turns for item in turn.read if isinstance(item, Observation)]
        return (*read, *self.closing)

    def trains(self, turn: Turn) -> bool:
        """Whether the reply of a turn is trained.

        Most replies are trained. The exceptions are replies at temperature 0 in a training episode,
        and replies in which all sampled tokens have `Sampled.trained` set to False.
        """
        chosen = turn.temperature != 0 or self.role != "train"
        return chosen and (not turn.sampled or any(span.trained for span in turn.sampled))

    @property
    def own_turns(self) -> tuple[Turn, ...]:
        """The turns after the fork from another trajectory, or all turns if there was no fork."""
        return self.turns[self.branch.turns if self.branch else 0 :]

    @property
    def sampled_tokens(self) -> int:
        """The number of tokens that the model sampled."""
        return sum(len(span.tokens) for turn in self.turns for span in turn.sampled)


@dataclass(frozen=True, slots=True)
class Group:
    """The episodes of one problem, sorted by index (`chain`), for rewards that compare episodes.

    Each episode has one trajectory, of the speaker that answered. FAILED episodes are left out.
    """

    trajectories: tuple[Trajectory, ...]


@dataclass(frozen=True, slots=True)
class Team:
    """All trajectories of an episode, one per speaker, for rewards that read all speakers."""

    trajectories: tuple[Trajectory, ...]

    def of(self, role: str) -> tuple[Trajectory, ...]:
        """Return the trajectories of all speakers of a role."""
        return tuple(one for one in self.trajectories if one.speaker == role)


def team(episode: Sequence[Trajectory]) -> Team:
    """Return the trajectories of an episode as a `Team`, sorted by speaker."""
    return Team(tuple(sorted(episode, key=lambda one: instance(one.agent))))


def instance(agent: str) -> tuple[str, int]:
    """Split a name into role and number: `worker/2` is ("worker", 2), `worker` is ("worker", 1)."""
    role, _, number = agent.partition("/")
    return role, int(number or 1)


@dataclass(frozen=True, slots=True)
class Scored:
    """The scores of a trajectory. A separate file stores them, so a trajectory can be scored again.

    `rewards` has the unweighted rewards by name, and `reward` is their weighted sum. `turn_rewards`
    has one reward per turn, or is empty.
    """

    trajectory_id: str
    rewards: Mapping[str, float]
    turn_rewards: tuple[float, ...]
    reward: float | Unscored
