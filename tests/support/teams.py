"""What makes agents of several contexts and speakers play on with a model that learned nothing."""

from collections.abc import Sequence

from agentfly_core import Message, Score, ToolCall, Trajectory, reward
from agentfly_core.inference.templates.chatml import Hermes


class Eager(Hermes):
    """The template that reads a call of the calculator in every other reply, whatever it says."""

    def parse(self, reply: Sequence[int], stop: Sequence[str] = ()) -> Message:
        """A reply whose tokens' sum is even has a call."""
        said = super().parse(reply, stop)
        call = ToolCall("calculator", {"expression": str(sum(reply))})
        return Message("assistant", said.content, () if sum(reply) % 2 else (call,))


@reward
def lot(trajectory: Trajectory) -> float:
    """1 for about every other episode, by its seed."""
    return float(trajectory.seed % 2)


@reward
def writers_share(trajectory: Trajectory) -> Score:
    """The answer's length, and a tenth of it for whoever is called writer."""
    letters = float(len(trajectory.turns[-1].reply.content))
    return Score(letters, by_speaker={"writer": letters / 10})
