"""Demonstrations of a planner and an executor."""

import random
from collections.abc import Sequence

from agentfly_core import Conversation, Message, Observation, Problem, call_text
from agentfly_core.datasets.players import Demonstrator, replying, slip
from agentfly_core.recipes.planner_executor.dataset import SIGNS


def planner_executor(problems: Sequence[Problem], seed: int, spoilt: float = 0.3) -> Demonstrator:
    """Return a policy for both speakers of the agent `agents.planner_executor`.

    The planner names the next step of the calculation, and the executor calculates it with the
    calculator. `spoilt` is the share of episodes in which one speaker makes a mistake. The planner
    may mistype a step, stop early or misread the last result. The executor may use a wrong
    operation or report a wrong result.
    """
    mistakes = ("mistype", "stop early", "misread", "take another operation", "misreport")
    return replying(seed, spoilt, _cooperate, mistakes)


def _cooperate(draw: random.Random, conversation: Conversation, mistake: str) -> str:
    messages = (one for one in conversation.messages if isinstance(one, Message))
    heard = [one.content for one in messages if one.role == "user"]
    if conversation.speaker == "planner":
        return _plan(draw, conversation.problem, mistake, heard)
    return _carry_out(draw, conversation, mistake, heard[0])


def _plan(draw: random.Random, problem: Problem, mistake: str, heard: Sequence[str]) -> str:
    first, then = problem.facts["steps"]
    place, done, result = draw.randrange(2), len(heard) - 1, heard[-1]
    if done == 2 or (done and mistake == "stop early"):
        return f"Answer: {slip(draw, result) if mistake == 'misread' else result}"
    step: str = f"{result} {then}" if done else first
    return slip(draw, step) if mistake == "mistype" and done == place else step


def _carry_out(draw: random.Random, conversation: Conversation, mistake: str, step: str) -> str:
    last, first = conversation.messages[-1], conversation.problem.facts["steps"][0]
    wrong = mistake if draw.randrange(2) == int(step != first) else ""
    if isinstance(last, Observation):
        return slip(draw, last.content) if wrong == "misreport" else last.content
    left, word, right = step.split()
    if wrong == "take another operation":
        word = draw.choice([other for other in SIGNS if other != word])
    return call_text("calculator", expression=f"{left}{SIGNS[word]}{right}")
