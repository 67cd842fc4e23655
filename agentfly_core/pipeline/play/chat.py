"""A person talks to a policy that has its tools and the environment of a problem."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from agentfly_core.authoring.author_call import in_thread
from agentfly_core.pipeline.play.mode import Mode
from agentfly_core.records.run_record import ModeName
from agentfly_core.records.trajectory import BadCall, Ending, Message, Observation
from agentfly_core.rollout.episode import Episode, RolloutSpec
from agentfly_core.rollout.rules import EpisodeOver

# a person writes more turns than an episode of training has, and takes longer
MAX_TURNS = 100
LONGEST = 24 * 3600.0


class Chat(Mode):
    """The agent whose user types: it begins with `first`; what `ask` returns comes after each reply
    that calls no tool. An empty text ends the chat.

        Chat("What is the capital of Chile?", ask=input, tell=print)

    `tell` gets a line for each thing that the policy says, calls or is answered.
    """

    name: ModeName = "chat"

    def __init__(self, first: str, ask: Callable[[], str], tell: Callable[[str], None]) -> None:
        self._first, self._ask, self._tell = first, ask, tell

    def rules(self, spec: RolloutSpec) -> RolloutSpec:
        """The same rules for an episode with a person: another agent and longer limits."""
        tasks = {name: self.rules(task) for name, task in spec.tasks.items()}
        return replace(spec, agent=self, max_turns=MAX_TURNS, deadline=LONGEST, tasks=tasks)

    async def __call__(self, episode: Episode) -> Ending:
        """Talk until the person types nothing, or a tool ends the episode."""
        # the person's first text takes the place of the problem's prompt
        *system, _ = episode.rules.opening(episode.problem)
        seen = [item for item in episode.opening if isinstance(item, Observation)]
        self._heard(seen)
        read: Sequence[Message | Observation] = (*system, Message("user", self._first), *seen)
        while True:
            reply = await episode.reply(*read)
            self._show(reply)
            if reply.calls:
                read = await self._answered(episode, reply)
                continue
            # in a thread, since typing would hold the event loop
            typed = await in_thread(self._ask, math.inf, "The chat")
            if not typed.strip():
                return Ending.NO_TOOL_CALLS
            read = (Message("user", typed),)

    def _show(self, reply: Message) -> None:
        if reply.content.strip():
            self._tell(f"policy> {reply.content.strip()}")
        for call in reply.calls:
            if isinstance(call, BadCall):
                self._tell(f"call>   {call.text} (unreadable: {call.fault})")
            else:
                arguments = json.dumps(dict(call.arguments), ensure_ascii=False)
                self._tell(f"call>   {call.name} {arguments}")

    async def _answered(self, episode: Episode, reply: Message) -> Sequence[Observation]:
        try:
            answers: Sequence[Observation] = await episode.call(*reply.calls)
        except EpisodeOver:
            self._heard(episode.closing)
            raise
        self._heard(answers)
        return answers

    def _heard(self, answers: Sequence[Observation]) -> None:
        for answer in answers:
            self._tell(f"{'error' if answer.error else 'tool'}>   {answer.tool}: {answer.content}")
