"""The episode that an agent plays, with its speakers and its concurrent tasks."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from agentfly_core.authoring.author_part import kinds_needed
from agentfly_core.authoring.environment import Environment
from agentfly_core.authoring.injection import Lent
from agentfly_core.authoring.reward import Reward
from agentfly_core.authoring.tool import Tool
from agentfly_core.inference.sampler import SamplerSession
from agentfly_core.records.trajectory import Ending, Message, Observation, Problem
from agentfly_core.rollout.episode_state import EpisodeState, current_branch
from agentfly_core.rollout.history.forks import Snapshot
from agentfly_core.rollout.history.timeline import EpisodeBranch
from agentfly_core.rollout.mailbox import EpisodeMailbox
from agentfly_core.rollout.pool import Limit
from agentfly_core.rollout.rules import (
    EpisodeOver,
    EpisodeRules,
    EpisodeSpec,
    ForkedSpec,
    PromptTooLong,
)
from agentfly_core.rollout.speaker import MakesSpeaker, Speaker
from agentfly_core.system.formats.text import clip, did_you_mean

R = TypeVar("R")
MAX_RESET_BYTES = 65_536


class Episode(Speaker):
    """One attempt of an agent at a problem.

    An agent is a function `async def agent(episode: Episode) -> Ending`. A speaker is a participant
    that samples replies. The episode itself is the main speaker, with the agent's `name` and the
    experiment's tools.

    - `opening`: the system message, the messages of the problem, and the texts that the method
      `reset` of environments returned
    - `turns`: the recorded turns of the main speaker
    - `closing`: the tool results after the last reply; the model has not read them
    - `speakers`: all speakers; the first one is the main speaker
    - `session`: the sampler of the replies, shared with concurrent episodes
    - `makes`: for each role that an external chat service plays, a function that makes its speakers
    - `counts`: counts of events, which become metrics
    """

    def __init__(
        self,
        episode_spec: EpisodeSpec,
        rules: EpisodeRules,
        session: SamplerSession,
        makes: Mapping[str, MakesSpeaker],
        name: str,
    ) -> None:
        problem = episode_spec.problem
        # copied, because tools and environments may change facts, and other episodes share the
        # problem
        problem = replace(problem, facts=deepcopy(problem.facts))
        self.opening: tuple[Message | Observation, ...] = rules.opening(problem)
        self.lent: dict[type[Lent], Lent] = {Problem: problem}
        state = EpisodeState(episode_spec, session, name, self.lent)
        if isinstance(episode_spec, ForkedSpec):
            state.repetition.origin = episode_spec.origin
        super().__init__(state, name, rules)
        self.speakers, self._makes = list[Speaker]([self]), makes
        self.timed, self.counts = state.timed, state.counts

    def lend(self, kind: type[Environment], environment: Environment) -> None:
        """Make an environment of the class `kind` available to tools and rewards.

        If its `reset` returned a text, also append this text to the first messages (`opening`).
        """
        self.lent[kind] = environment
        if text := environment.reset_text.strip():
            most = self.rules.max_observation_tokens
            content = self.rules.template.fit(clip(text, MAX_RESET_BYTES), most)
            self.opening += (Observation(kind.__name__, content),)

    @property
    def problem(self) -> Problem:
        """The problem. Its `facts` (data for rewards) are a copy that only this episode uses."""
        return self.state.problem

    @property
    def memory(self) -> Path:
        """The folder with the policy's memory: files that the function in `agent.remembers` wrote.

        The folder is empty if the policy does not have a memory yet. Do not write to this folder.
        """
        return self.rules.memory or Path(_no_memory().name)

    @property
    def answered(self) -> tuple[str, str | None]:
        """The name of the speaker that answered last, and this answer.

        Before the first answer, the result is the name of the main speaker, and None.
        """
        return self.state.trunk.answers[-1] if self.state.trunk.answers else (self.name, None)

    def speaker(
        self,
        role: str,
        *,
        system: str = "",
        tools: Sequence[Tool] = (),
        max_turns: int | None = None,
        instance: int | None = None,
    ) -> Speaker:
        """Add another speaker, such as a planner, with its own system message, tools and number of
        turns.

        Each speaker has its own trajectory. Advantages compare the trajectories of speakers with
        the same problem and role. Roles in `agent.frozen` are not trained.

        `instance` numbers the speakers of a role. The second speaker of the role `searcher` has
        `instance` 2 and the name `searcher/2`. By default, speakers are numbered in the order in
        which they are added. Within `gather`, this order is not fixed, so `instance` is required.

        Raises ValueError if the name is taken, if a required `instance` is missing, or if the
        episode lacks an environment that a tool needs.
        """
        there = sum(one.role == role for one in self.speakers)
        name = self._name(role, there + 1 if instance is None else instance)
        if instance is None and self.history.number:
            raise ValueError(
                f"The speaker {role!r} was created within episode.gather without `instance`. "
                "Create it before gather, or number the speakers of this role: `instance=1`, ..."
            )
        if lacking := [kind for kind in kinds_needed(tools) if kind not in self.lent]:
            raise ValueError(
                f"A tool of the speaker {name!r} needs the environment {lacking[0].__name__}. "
                "Add this tool to the experiment's `tools`, so that episodes get the environment."
            )
        rules = replace(
            self.rules,
            system=system,
            tools=tuple(tools),
            max_turns=self.rules.max_turns if max_turns is None else max_turns,
        )
        begin = (Message("system", system),) if system else ()
        made = self._makes.get(role, Speaker)(self.state, name, rules, *begin)
        self.speakers.append(made)
        return made

    async def gather(self, *work: Coroutine[Any, Any, R]) -> list[R]:
        """Run coroutines of the agent concurrently, and return their results in the order of
        `work`.

        The seeds of replies do not depend on timing. Limits such as `max_turns` apply to each
        coroutine separately: they count the coroutine's own replies and the replies before
        `gather`.

        If coroutines raise errors, the first error in the order of `work` is raised after all
        coroutines have ended. Other errors take precedence over EpisodeOver. Raises ServiceFailure
        if the coroutines wait for each other.
        """
        branch = self.history
        branches = branch.fork(len(work))
        results = list[R | BaseException]()
        with branch.alone():
            await self.state.do(self._open(branch, len(work)))
            pairs = zip(branches, work, strict=True)
            tasks = {one: asyncio.create_task(self._part(branch, one, do)) for one, do in pairs}
            with self.state.parts.running(branch, tasks):
                results += await asyncio.gather(*tasks.values(), return_exceptions=True)
        if standstill := self.state.parts.failure:
            raise standstill
        errors = [result for result in results if isinstance(result, BaseException)]
        # a stable sort, so the first error of another class comes before every EpisodeOver
        errors.sort(key=lambda error: isinstance(error, EpisodeOver))
        if errors:
            # the branch with this error joins last, because it ended the episode
            branches.append(branches.pop(results.index(errors[0])))
        branch.join(branches)
        if errors:
            raise errors[0]
        return [result for result in results if not isinstance(result, BaseException)]

    @asynccontextmanager
    async def branch(self) -> AsyncIterator[None]:
        """Run the replies of this block concurrently with the replies of other `branch` blocks.

            async def answer(messages: Sequence[Message]) -> Reply:  # called by several tasks
                async with episode.branch():
                    return await episode.turn(messages)

        A block may begin at any time. Replies in the block can continue any conversation from
        before the block. After the block, later replies can continue the conversations of the
        block, too. The seed of a reply depends on its prompt, not on the order of the blocks.

        Raises EpisodeOver after the end of the episode. Raises ValueError while a reply outside of
        `branch` blocks is running. With the in-process sampler, batches depend on the order in
        which the requests arrive, so replies may differ between runs. Use `gather` if the
        coroutines are known beforehand.
        """
        trunk = self.history
        branch = trunk.part()
        await self.state.do(self._open(trunk, 1))
        before = current_branch.set(branch)
        try:
            yield
        finally:
            current_branch.reset(before)
            trunk.join([branch])
            with suppress(EpisodeOver):
                await self.state.do(self._close(trunk))

    def mailbox(self) -> EpisodeMailbox[Any]:
        """Create a mailbox for messages between coroutines of `gather`; see EpisodeMailbox."""
        return EpisodeMailbox(self.state)

    async def snapshot(self) -> Snapshot:
        """Save the states of all environments of the episode.

            before = await episode.snapshot()
            ...
            await episode.restore(before)

        Conversations are not saved. To continue an earlier conversation, pass its messages to
        `reply_to` or `turn`. Raises NotImplementedError if an environment cannot save its state,
        and ServiceFailure if saving fails.
        """
        return await self.state.do(self.state.snapshot())

    async def restore(self, snapshot: Snapshot) -> None:
        """Set the environments to the states in a snapshot of this episode.

        Raises NotImplementedError if an environment cannot restore its state, and ServiceFailure if
        restoring fails.
        """
        await self.state.do(self.state.restore(snapshot))

    async def fork(self, count: int = 1) -> int:
        """Create `count` forks of this episode: further episodes that continue from this call.

        Returns 0 in the current episode and 1, 2, ... in the forks.

            number = await episode.fork(2)  # three episodes continue from here
            await episode.reply(Message("user", f"Try approach {number}."))

        In each fork, the agent's code runs from its beginning. Until the code reaches this call, it
        gets the recorded replies and tool results, and nothing is sampled. Then the environments
        are restored from snapshots. If an environment lacks `snapshot`, the tools are executed
        again instead. If the agent's requests or the tool results before this call differ from the
        recorded ones, the fork ends with Ending.FAILED. Recorded replies count towards limits such
        as `max_turns`.

        Raises ValueError inside `gather` or `branch`, or if `rollout.branching` is set. Raises
        ServiceFailure if a snapshot fails.
        """
        branch = self.history
        if self.rules.branching:
            raise ValueError(
                "rollout.branching and episode.fork cannot be used together. Remove one of them."
            )
        if branch.number or branch.parts or branch is not self.state.trunk:
            raise ValueError("Call episode.fork outside of episode.gather and episode.branch.")
        with branch.alone():
            return await self.state.do(self._fork(count))

    async def _fork(self, count: int) -> int:
        repetition = self.state.repetition
        if origin := repetition.repeats:
            result = repetition.fork()
            if not repetition.repeats:
                await self.state.begin_at(origin)
            return result
        await self.state.fork(count)
        repetition.path.forks.append(0)
        return 0

    def is_opening(self, messages: tuple[Message | Observation, ...]) -> bool:
        return messages == self.opening

    async def _part(
        self, trunk: EpisodeBranch, branch: EpisodeBranch, work: Coroutine[Any, Any, R]
    ) -> R:
        current_branch.set(branch)
        try:
            return await work
        finally:
            self.state.parts.ended(branch)
            with suppress(EpisodeOver):
                await self.state.do(self._close(trunk))

    async def _open(self, trunk: EpisodeBranch, count: int) -> None:
        """Count `count` more open branches of `trunk`, and report them to the sampler.

        The sampler counts running coroutines. The first open branch is not reported, because it
        takes the place of `trunk`, which requests no replies while branches are open.
        """
        for _ in range(count):
            if trunk.parts:
                self.state.open()
            trunk.parts += 1

    async def _close(self, trunk: EpisodeBranch) -> None:
        trunk.parts -= 1
        if trunk.parts:
            self.state.close()

    def _name(self, role: str, instance: int) -> str:
        if not role or "/" in role or instance < 1:
            raise ValueError(
                f"A speaker needs a role without a slash and an instance of 1 or more; got "
                f"{role!r} and {instance}."
            )
        name = role if instance == 1 else f"{role}/{instance}"
        if name in (one.name for one in self.speakers):
            raise ValueError(
                f"This episode already has a speaker {name!r}; use that speaker instead of a new "
                "one."
            )
        return name


@cache
def _no_memory() -> TemporaryDirectory[str]:
    """Create an empty folder. It is removed when the process ends."""
    return TemporaryDirectory(prefix="agentfly-no-memory-")


Agent = Callable[[Episode], Awaitable[Ending]]


@dataclass(frozen=True, kw_only=True)
class RolloutSpec(EpisodeRules):
    """The rules, the agent and the time limit of an experiment's episodes.

    - `rewards`: only the rewards that read an environment. All other rewards are computed after the
      rollout.
    - `deadline`: the time limit of an episode in seconds
    - `limits`: maps each environment class to its maximum number of instances
    - `at_once`: the maximum number of concurrent episodes
    - `tasks`: if the experiment trains several tasks, maps the name of each task to its spec. The
      spec that contains `tasks` has the tools and rewards of all tasks.
    """

    rewards: tuple[Reward, ...]
    agent: Agent
    deadline: float
    limits: Mapping[type[Environment], Limit]
    at_once: int = sys.maxsize
    tasks: Mapping[str, RolloutSpec] = field(default_factory=dict)

    def of(self, problem: Problem) -> RolloutSpec:
        """Return the spec of the problem's task. If the problem lists tools, only these are kept.

        Raises ValueError if the problem selects a tool that the experiment does not have.
        """
        own, names = self.tasks.get(problem.task, self), problem.tools
        if names is None:
            return own
        tools = {tool.name: tool for tool in own.tools}
        if unknown := [name for name in names if name not in tools]:
            raise ValueError(
                f"The problem {problem.id!r} selects the tool {unknown[0]!r}, but the tools of "
                f"the experiment are: {', '.join(tools) or 'none'}. Add the tool to `tools` of the "
                f"experiment.{did_you_mean(unknown[0], [*tools])}"
            )
        return replace(own, tools=tuple(tool for tool in own.tools if tool.name in names))

    def require_room(self, problems: Iterable[Problem]) -> None:
        """Raise PromptTooLong if the first prompt of a problem fills the context (`max_model_len`
        tokens).
        """
        tokens = {
            p.id: len(self.template.open(self.opening(p), self.of(p).schemas)) for p in problems
        }
        if long := {
            problem: count for problem, count in tokens.items() if count >= self.max_model_len
        }:
            raise PromptTooLong(long, self.max_model_len)

    @cached_property
    def kinds(self) -> tuple[type[Environment], ...]:
        """The environment classes that an episode needs, in the order in which they are leased."""
        return kinds_needed([*self.tools, *self.rewards])
