"""Agents that decide before the first reply whether to call a tool."""

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

    The gate can also leave this decision to the model. The modes are:

    - `off`: the gate always leaves the decision to the model.
    - `advise`: the gate appends a message to the problem. If the decision is to answer, the message
      is the text of the setting `answer`. If the decision is to call a tool, the message is CALL
      ("Use a tool."). No message is appended if the gate leaves the decision to the model.
    - `force`: the gate appends the same messages. If the decision is to answer, the first reply
      ends the episode, and tool calls in this reply are not executed. If the decision is to call a
      tool, a first reply without a tool call gets the message CALL a second time.

    `agent` is the import path of an agent whose only conversation is the episode's main
    conversation. With an empty setting `answer`, the decision to answer appends no message. Three
    metrics count the decisions: `gate/answer`, `gate/call` and `gate/own` (the model decides).
    """

    def __init__(self, mode: GateMode, agent: str, answer: str) -> None:
        self.mode, self.hint = mode, hint_of(answer)
        self.agent: Callable[[Episode], Awaitable[Ending]] = resolve_name(agent)

    @abstractmethod
    async def decide(self, episode: Episode) -> GateDecision:
        """Return the decision.

        It is "answer" to answer at once, "call" to call a tool, or "own" to let the model decide.
        """

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
    """Decides with a probe (classifier of the policy's hidden states) whether a tool is called.

    `probe` is the file that the flow `fit_gate` wrote. The hidden states are those at the last
    token of a prompt. The prompt is the problem, then the setting `answer` as a user message.

    A probe is valid only for the policy to which it was fitted. With the setting `stale="fail"`, an
    episode of another policy fails. With `stale="own"`, the model itself decides in such an
    episode. A training run needs "own", because the policy changes with each training step.
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
                raise ValueError(
                    "agent.probe is empty: set it to the file that the flow fit_gate writes."
                )
            self.probe = MetaCogProbe.load(Path(probe))

    async def decide(self, episode: Episode) -> GateDecision:
        states = await episode.hidden(self.probe.layers, *episode.opening, *self.hint)
        if self.stale == "own" and states.policy != self.probe.policy:
            return "own"
        self.probe.require(states.policy)
        return self.probe.decide(float(self.probe.score(states.values)))


class AtRandom(Gate):
    """Decides at random between an immediate answer and a tool call.

    With the settings `answers=0.7` and `calls=0.1`, the decision is an immediate answer for 70 % of
    the problems, and a tool call for 10 %. For all other problems, the model itself decides. The
    gate always has the mode `force` (see Gate).
    """

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
    """An agent that measures hidden states, to fit a probe. Tool calls are not executed.

    The episode's answer is a JSON object:

    - `states`: the hidden states [layers, width] of all layers at the last token of the prompt,
      encoded as text by `packed`. The prompt is the problem, followed by the text of the setting
      `answer` as a message.
    - `contrast`: the hidden states after the message HIGH minus the hidden states after the message
      LOW, encoded like `states`. Both messages follow the problem. HIGH instructs the model to
      judge its knowledge carefully, and LOW instructs it not to.
    - `p_yes`: the probability that the model replies "yes" to the question ASK, which asks whether
      the model is certain of the answer
    - `calls`: whether the model's first reply calls a tool if the prompt is only the problem
    - `policy`: the digest of the model's weights.
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
    """Return a tuple with this text as user message. For an empty text, the tuple is empty."""
    return (Message("user", text),) if text else ()


def p_yes(reply: Reply) -> float:
    """Estimate P(yes) from the probability of the greedy first token.

    The estimate assumes that P(yes) + P(no) = 1. If the token is neither "yes" nor "no", the result
    is 0.5.
    """
    word, chance = reply.message.content.strip().lower(), math.exp(reply.logprobs[0])
    return {"yes": chance, "no": 1 - chance}.get(word, 0.5)


def packed(values: Array) -> str:
    """Encode an array [layers, width] as text.

    The text has the float16 values in base64, a space, and the number of layers.
    """
    return base64.b64encode(values.astype("<f2").tobytes()).decode() + f" {len(values)}"


def unpacked(text: str) -> Array:
    """Return the array [layers, width] that `packed` encoded as text, in float64."""
    numbers, _, layers = text.partition(" ")
    flat = np.frombuffer(base64.b64decode(numbers), "<f2").astype(np.float64)
    return flat.reshape(int(layers), -1)
