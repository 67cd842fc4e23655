"""Agents: gates before the first reply, and a reader of hidden states."""

import base64
import json
import math
import random
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from pathlib import Path
from pkgutil import resolve_name
from typing import Literal

import numpy as np

from agentfly_core import Ending, Episode, Message, Reply
from agentfly_core.recipes.meco.probe import Array, GateDecision, MetaCogProbe

GateMode = Literal["off", "advise", "force"]
TOOL_LOOP = "agentfly_core.agents.tool_loop:tool_loop"
ANSWER = "Answer at once, with one word or number."
CALL = "Use a tool."
ASK = "Do you know the answer for certain? Reply with Yes or No."
HIGH = "You know exactly what you know and what you do not know. Judge your knowledge carefully."
LOW = "You cannot judge what you know. Answer without thinking about your knowledge."


class Gate(ABC):
    """Decides before the first reply whether `agent` answers at once or calls a tool.

    `off` leaves this to the model. `advise` appends the message `answer` or CALL to the problem.
    `force` also ends the episode with the answer, without executing calls, and repeats CALL once if
    the reply has no call. `agent` is the import path of an agent with the episode's main speaker.
    An empty `answer` appends no message. The counts `gate/answer`, `gate/call` and `gate/own` are
    metrics.
    """

    def __init__(self, mode: GateMode, agent: str, answer: str) -> None:
        self.mode, self.hint = mode, hint_of(answer)
        self.agent: Callable[[Episode], Awaitable[Ending]] = resolve_name(agent)

    @abstractmethod
    async def decide(self, episode: Episode) -> GateDecision:
        """`answer`, `call`, or `own` if the model decides."""

    async def __call__(self, episode: Episode) -> Ending:
        decision = "own" if self.mode == "off" else await self.decide(episode)
        episode.counts[f"gate/{decision}"] += 1
        if decision == "own":
            return await self.agent(episode)
        hint = self.hint if decision == "answer" else hint_of(CALL)
        episode.opening += hint
        if self.mode == "advise":
            return await self.agent(episode)
        reply = await episode.reply(*episode.opening)
        if decision == "answer":
            episode.answer(reply.content.strip())
            return Ending.NO_TOOL_CALLS
        if not reply.calls:
            reply = await episode.reply(*hint)
        episode.opening = await episode.call(*reply.calls)
        return await self.agent(episode) if reply.calls else Ending.NO_TOOL_CALLS


class Gated(Gate):
    """A gate by a probe, the file that the flow `fit_gate` has written.

    It reads the states of the probe's layers at the end of the prompt of an answer at once. An
    episode of another policy than the probe's fails, see StaleProbe. With `stale="own"` its model
    decides, because a run also plays the policies after its steps.
    """

    def __init__(
        self,
        probe: str = "",
        mode: GateMode = "force",
        agent: str = TOOL_LOOP,
        answer: str = ANSWER,
        stale: Literal["fail", "own"] = "fail",
    ) -> None:
        super().__init__(mode, agent, answer)
        self.stale = stale
        self.reads_hidden_states = mode != "off"
        if self.reads_hidden_states:
            if not probe:
                raise ValueError("agent.probe is missing: the flow fit_gate writes its file.")
            self.probe = MetaCogProbe.load(Path(probe))

    async def decide(self, episode: Episode) -> GateDecision:
        states = await episode.hidden(self.probe.layers, *episode.opening, *self.hint)
        if self.stale == "own" and states.policy != self.probe.policy:
            return "own"
        self.probe.require(states.policy)
        return self.probe.decide(float(self.probe.score(states.values)))


class AtRandom(Gate):
    """Answers a share `answers` of the problems at once, and forces calls in a share `calls`."""

    def __init__(
        self,
        answers: float = 0.7,
        calls: float = 0.1,
        seed: int = 0,
        agent: str = TOOL_LOOP,
        answer: str = ANSWER,
    ) -> None:
        super().__init__("force", agent, answer)
        self.answers, self.calls, self.seed = answers, calls, seed

    async def decide(self, episode: Episode) -> GateDecision:
        share = random.Random(f"{self.seed} {episode.problem.id}").random()
        if share < self.answers:
            return "answer"
        return "call" if share < self.answers + self.calls else "own"


class Reading:
    """Answers with a JSON object for `fitting.readings`; no tool is called.

    `states` and `contrast` have the form of `packed`: the states [layers, width] of all layers at
    the end of the prompt of an answer at once, and their difference between the instructions HIGH
    and LOW. `p_yes` is the probability that the model replies yes to ASK, `calls` whether its own
    first reply calls a tool, and `policy` the digest of its weights.
    """

    reads_hidden_states = True

    def __init__(self, answer: str = ANSWER) -> None:
        self.answer = answer

    async def __call__(self, episode: Episode) -> Ending:
        prompts = [(*episode.opening, *hint_of(text)) for text in (self.answer, HIGH, LOW)]
        states, high, low = [await episode.hidden(None, *prompt) for prompt in prompts]
        question = (*episode.opening, Message("user", ASK))
        yes = await episode.turn(question, temperature=0, max_tokens=1)
        own = await episode.turn(episode.opening, temperature=0)
        reading = {
            "states": packed(states.values),
            "contrast": packed(high.values - low.values),
            "p_yes": p_yes(yes),
            "calls": bool(own.message.calls),
            "policy": states.policy,
        }
        episode.answer(json.dumps(reading))
        return Ending.NO_TOOL_CALLS


def hint_of(text: str) -> tuple[Message, ...]:
    """A message of the user, or none for an empty text."""
    return (Message("user", text),) if text else ()


def p_yes(reply: Reply) -> float:
    """P(yes), assuming P(yes) + P(no) = 1; 0.5 for another greedy token."""
    word, chance = reply.message.content.strip().lower(), math.exp(reply.logprobs[0])
    return {"yes": chance, "no": 1 - chance}.get(word, 0.5)


def packed(values: Array) -> str:
    """Numbers [layers, width] as text, in float16."""
    return base64.b64encode(values.astype("<f2").tobytes()).decode() + f" {len(values)}"


def unpacked(text: str) -> Array:
    """The inverse of `packed`, in float64."""
    numbers, _, layers = text.partition(" ")
    flat = np.frombuffer(base64.b64decode(numbers), "<f2").astype(np.float64)
    return flat.reshape(int(layers), -1)
