"""Selection of the episodes that a night's report shows."""

from dataclasses import replace

from agentfly_core.records.trajectory import (
    BadCall,
    Message,
    Observation,
    Problem,
    Scored,
    ToolCall,
    Unscored,
)
from agentfly_core.reports.nights.night_report import changed, conversation
from agentfly_core.runs.episodes import Pair, Piece
from agentfly_core.testing.trajectories import trajectory, turn


def episode(problem: str, reward: float | Unscored, chain: int = 0) -> Pair:
    name = f"{problem}-{chain}"
    reply = turn([1], dict.fromkeys(range(3), -0.1))
    played = trajectory(reply, name=name, problem=Problem(problem, "?"), chain=chain)
    return played, Scored(name, {}, (), reward)


def test_the_largest_gains_and_losses_are_shown() -> None:
    before = [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.5]
    after = [1.0, 0.2, 0.4, 0.3, 0.9, 0.0, 0.5]
    first = [episode(f"p{i}", reward) for i, reward in enumerate(before)]
    then = [episode(f"p{i}", reward) for i, reward in enumerate(after)]
    problems = [twice.shown.place[0] for twice in changed(first, then)]
    assert problems == ["p0", "p2", "p3", "p5", "p4"]
    assert changed([], []) == []


def test_episodes_of_a_problem_are_compared_by_number() -> None:
    first = [episode("p", 0.0, chain=0), episode("p", 1.0, chain=1), episode("q", 1.0)]
    lost = Unscored("exact: TimeoutError")
    then = [episode("p", 0.75, chain=1), episode("p", 0.5, chain=0), episode("q", lost)]
    changes = [(twice.shown.place[1], twice.change) for twice in changed(first, then)]
    assert changes == [(0, 0.5), (1, -0.25)]


def test_an_episode_of_several_speakers_is_compared_by_answer() -> None:
    def team(reward: float, answered: str) -> list[Pair]:
        played, scored = episode("p", reward)
        assert scored
        names = ("critic", "planner", "planner/2")
        answers = {one: "99" if one == answered else None for one in names}
        return [
            (
                replace(played, id=one, agent=one, episode="e", answered=answers[one]),
                replace(scored, trajectory_id=one, reward=reward if answers[one] else 0.0),
            )
            for one in names
        ]

    (twice,) = changed(team(0.25, "planner"), team(1.0, "planner/2"))
    assert twice.shown.conversations[0][0].agent == "planner/2"
    assert twice.change == 0.75


def test_a_conversation_leaves_out_the_problem() -> None:
    calls = (ToolCall("calculator", {"expression": "41+58"}), BadCall("{", "unterminated"))
    question = Message("user", "What is 41+58?")
    played = trajectory(
        turn([1], {5: -0.1}, read=[question], reply=Message("assistant", "I compute.", calls)),
        turn([2], {6: -0.1}, read=[Observation("calculator", "99")], reply="99"),
        closing=[Observation("answer", "99")],
    )
    assert conversation(played) == [
        Piece(
            "sampled",
            'I compute.\ncalculator({"expression": "41+58"})\n{ (unreadable: unterminated)',
        ),
        Piece("read", "calculator: 99"),
        Piece("sampled", "99"),
        Piece("after", "answer: 99"),
    ]
