"""Execute the tool calls of a speaker (a participant of an episode)."""

import asyncio
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby

from agentfly_core.authoring.tool import Tool
from agentfly_core.records.trajectory import BadCall, Ending, Observation, ToolCall
from agentfly_core.rollout.episode_state import EpisodeState
from agentfly_core.rollout.history.forks import AnsweredCalls
from agentfly_core.rollout.history.timeline import EpisodeBranch
from agentfly_core.rollout.rules import EpisodeOver, EpisodeRules
from agentfly_core.system.formats.text import clip, did_you_mean


@dataclass
class ToolUse:
    """Executes the tool calls of a speaker, i.e. a participant of an episode."""

    state: EpisodeState
    name: str
    rules: EpisodeRules

    @cached_property
    def _tools(self) -> dict[str, Tool]:
        return {tool.name: tool for tool in self.rules.tools}

    async def call(
        self, branch: EpisodeBranch, *calls: ToolCall | BadCall
    ) -> tuple[Observation, ...]:
        observations: list[Observation] = []
        with self.state.timed("tools"):
            for parallel, run in groupby(calls, self._is_parallel):
                if parallel:
                    observations += await self._answers(branch, *run)
                    continue
                for call in run:
                    observations += await self._answers(branch, call)
                    last = observations[-1]
                    if not last.error and self._tools[last.tool].ends_episode:
                        self._end(branch, last)
        return tuple(observations)

    def _end(self, branch: EpisodeBranch, last: Observation) -> None:
        if self.name != self.state.main:
            branch.answers.append((self.name, last.content))
        raise EpisodeOver(Ending.TERMINAL)

    def _is_parallel(self, call: ToolCall | BadCall) -> bool:
        return (
            isinstance(call, ToolCall)
            and call.name in self._tools
            and self._tools[call.name].parallel
        )

    async def _answers(
        self, branch: EpisodeBranch, *calls: ToolCall | BadCall
    ) -> tuple[Observation, ...]:
        repetition = self.state.repetition
        own = [reply for reply in branch.replies if reply.speaker == self.name]
        after = (self.name, *branch.number, "after", *(own[-1].place if own else ()))
        place = (*after, repetition.calls_behind(after))
        observations = repetition.answers(place, calls)
        if observations is None:
            observations = await self._executed(*calls)
        repetition.answered(place, AnsweredCalls(calls, observations))
        branch.answered(self.name, observations)
        return observations

    async def _executed(self, *calls: ToolCall | BadCall) -> tuple[Observation, ...]:
        if self.rules.branching:
            called = sum(isinstance(one, ToolCall) and one.name in self._tools for one in calls)
            self.state.counts["branching/executed_calls"] += called
        # all calls end before an error is raised, because they share environments
        answers = await asyncio.gather(
            *(self._answer(call) for call in calls), return_exceptions=True
        )
        for failure in answers:
            if isinstance(failure, BaseException):
                raise failure
        return tuple(answer for answer in answers if isinstance(answer, Observation))

    async def _answer(self, call: ToolCall | BadCall) -> Observation:
        if isinstance(call, BadCall):
            text = f"This tool call could not be read: {clip(call.fault, 500)}"
            answer = Observation("unreadable", text, error=True)
        elif call.name in self._tools:
            tool = self._tools[call.name]
            answer = await tool.answer(call, self.state.lent)
            # the model does not read it, and rewards read all of it
            if tool.ends_episode and not answer.error:
                return answer
        else:
            name = clip(call.name, 80)
            text = f"There is no tool {name!r}.{did_you_mean(name, list(self._tools))}"
            answer = Observation("unknown", text, error=True)
        most = self.rules.max_observation_tokens
        return replace(answer, content=self.rules.template.fit(answer.content, most))
