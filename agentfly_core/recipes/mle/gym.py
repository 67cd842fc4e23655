"""The environment `MLE` (a machine-learning competition) as a `gymnasium.Env`."""

import asyncio
import string
from collections.abc import Sequence
from typing import Any

import gymnasium
from gymnasium import spaces

from agentfly_core import Problem, ToolCall
from agentfly_core.recipes.mle import tools
from agentfly_core.recipes.mle.environment import MLE

TOOLS = (tools.request_info, tools.validate_code, tools.execute_code)
LONGEST = 20_000
"""The largest number of characters in the argument of an action."""
_PRINTABLE = frozenset(string.printable)

GymAction = dict[str, Any]


class MLEGym(gymnasium.Env[str, GymAction]):
    """The environment `MLE` with Gymnasium's interface.

    `MLEGym(problems).reset(seed=0)` draws one of the problems. An action is
    `{"tool": 2, "argument": "import pandas ..."}`, where `tool` is an index of TOOLS. The
    observation is the text that the tool returns, with "?" for characters that are not printable
    ASCII. The reward is the increase of the best HumanRank so far. HumanRank is a place on the
    leaderboard as a number from 0 (worst) to 1 (best). `info["error"]` is True if the tool call
    failed. An episode never terminates; it is truncated after `max_steps` steps.
    """

    def __init__(self, problems: Sequence[Problem], max_steps: int = 10) -> None:
        self.action_space = spaces.Dict(
            {
                "tool": spaces.Discrete(len(TOOLS)),
                "argument": spaces.Text(LONGEST, min_length=0, charset=_PRINTABLE),
            }
        )
        self.observation_space = spaces.Text(tools.SHOWN, min_length=0, charset=_PRINTABLE)
        self._problems, self._max_steps, self._steps = problems, max_steps, 0
        self._mle, self._runner = MLE(), asyncio.Runner()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Draw a competition, and return its description as observation."""
        super().reset(seed=seed)
        problem = self._problems[int(self.np_random.integers(len(self._problems)))]
        self._runner.run(self._mle.reset(problem))
        self._steps = 0
        return _printable(self._mle.task.description), {"error": False}

    def step(self, action: GymAction) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Call a tool. Return observation, reward, terminated, truncated and info, as in Gymnasium.

        For a wrong call or failing code, the reward is 0 and no exception is raised.
        """
        tool = TOOLS[action["tool"]]
        name = "topic" if tool is tools.request_info else "code"
        call = ToolCall(tool.name, {name: action["argument"]})
        answer = self._runner.run(tool.answer(call, {MLE: self._mle}))
        self._steps += 1
        text, over = _printable(answer.content), self._steps >= self._max_steps
        return text, answer.reward or 0.0, False, over, {"error": answer.error}

    def close(self) -> None:
        """Close the environment `MLE` and its event loop."""
        self._runner.run(self._mle.close())
        self._runner.close()


def _printable(text: str) -> str:
    return "".join(letter if letter in _PRINTABLE else "?" for letter in text)[: tools.SHOWN]
