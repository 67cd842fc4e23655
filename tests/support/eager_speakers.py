"""Templates and rewards that let an untrained model play with several contexts and speakers."""

from collections.abc import Sequence

from agentfly_core import Message, Score, ToolCall, Trajectory, reward
from agentfly_core.inference.templates.chatml import Hermes


class Eager(Hermes):
    """Template that reads a calculator call in about every second reply."""

    def parse(self, reply: Sequence[int], stop: Sequence[str] = ()) -> Message:
        """Add a call to each reply with an even sum of tokens."""
        message = super().parse(reply, stop)
        call = ToolCall("calculator", {"expression": str(sum(reply))})
        return Message("assistant", message.content, () if sum(reply) % 2 else (call,))


@reward
def lot(trajectory: Trajectory) -> float:
    """1 for about every other episode, by its seed."""
    return float(trajectory.seed % 2)


@reward
def writers_share(trajectory: Trajectory) -> Score:
    """Length of the answer; a tenth of it for the speaker named writer."""
    letters = float(len(trajectory.turns[-1].reply.content))
    return Score(letters, by_speaker={"writer": letters / 10})
