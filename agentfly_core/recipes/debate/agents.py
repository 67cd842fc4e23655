"""Concurrent debaters that read each other's answers (arXiv 2305.14325)."""

from collections.abc import Sequence

from agentfly_core import Ending, Episode, Message, Observation, Speaker


class Debate:
    """A debate of several speakers (the debaters) in several rounds. All debaters are trained.

    `debaters` and `rounds` are the numbers of debaters and rounds. In the first round, each debater
    reads the problem. In later rounds, each debater reads the answers of the others. In each round,
    a debater may call the experiment's tools once before it answers. The most frequent answer of
    the last round becomes the answer of the episode.
    """

    def __init__(self, debaters: int = 3, rounds: int = 2) -> None:
        self.debaters, self.rounds = debaters, rounds

    async def __call__(self, episode: Episode) -> Ending:
        tools, answers = episode.rules.tools, list[str]()
        debaters = [episode.speaker("debater", tools=tools) for _ in range(self.debaters)]
        for number in range(self.rounds):
            read = [
                others(answers, own) if number else episode.opening for own in range(len(debaters))
            ]
            answers = await episode.gather(*map(answered, debaters, read))
        episode.answer(majority(answers))
        return Ending.NO_TOOL_CALLS


async def answered(debater: Speaker, read: Sequence[Message | Observation]) -> str:
    """Return the debater's answer, or "" if a token limit ended its reply.

    If the first reply contains tool calls, they are executed, and the second reply is the answer.
    """
    reply = await debater.reply(*read)
    if reply.calls:
        reply = await debater.reply(*await debater.call(*reply.calls))
    return "" if reply.cut else reply.content.strip()


def others(answers: Sequence[str], own: int) -> list[Message]:
    """Return one user message with all answers except the answer at the index `own`.

    The content of the message is, for example, "17, 99".
    """
    return [Message("user", ", ".join([*answers[:own], *answers[own + 1 :]]))]


def majority(answers: Sequence[str]) -> str:
    """Return the most frequent answer that is not empty, or "" if all answers are empty.

    Of equally frequent answers, the first is returned.
    """
    given = [answer for answer in answers if answer]
    return max(given, key=given.count, default="")
