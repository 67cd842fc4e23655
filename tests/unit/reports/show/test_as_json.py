"""Episodes for programs."""

import json

from agentfly_core.records.trajectory import Observation, Scored, Trajectory, Unscored
from agentfly_core.reports.show.as_json import episodes_json
from agentfly_core.reports.show.choice import by_episode
from agentfly_core.runs.episodes import Episodes, Pair, Piece
from tests.support.recorded_episode import trajectory


def no_pieces(_: Trajectory) -> list[Piece]:
    return []


def test_a_document_has_all_parts_of_each_episode() -> None:
    played = trajectory(closing=(Observation("answer", "98", error=True),))
    pair: Pair = (played, Scored(played.id, {"exact": 1.0, "exact/tag": 0.5}, (0.0, 1.0), 1.0))
    stored = Episodes("run:demo@7", "demo, step 7", (pair, pair), no_pieces)
    document = json.loads(json.dumps(episodes_json(stored, 2, by_episode([pair]))))
    (episode,) = document.pop("shown")
    assert document == {
        "reference": "run:demo@7",
        "title": "demo, step 7",
        "episodes": 2,
        "matching": 2,
    }
    assert episode["problem"] == {
        "id": "add-41-58",
        "prompt": "What is 41+58?",
        "facts": {"answer": "99"},
    }
    assert (episode["reward"], episode["unscored"], episode["ending"]) == (
        1.0,
        None,
        "no_tool_calls",
    )
    assert (episode["rewards"], episode["turn_rewards"]) == (
        {"exact": 1.0, "exact/tag": 0.5},
        [0.0, 1.0],
    )
    assert episode["messages"] == [
        {"role": "user", "text": "What is 41+58?"},
        {
            "role": "assistant",
            "text": "",
            "calls": [
                {"name": "calculator", "arguments": {"expression": "41+58"}},
                {"text": "{", "fault": "unterminated"},
            ],
        },
        {"role": "tool", "tool": "calculator", "text": "99", "error": False},
        {"role": "assistant", "text": "99", "calls": []},
        {"role": "tool", "tool": "answer", "text": "98", "error": True},
    ]
    assert episode["turns"][0] == {
        "given": [1, 2, 3],
        "sampled": [
            {"tokens": [4, 5], "logprobs": [-0.5, -0.25], "policy_version": 6, "finish": "stop"}
        ],
        "context": 0,
        "call": 0,
        "reward": None,
    }
    assert [span["tokens"] for span in episode["turns"][1]["sampled"]] == [[7], [8, 9]]


def test_an_episode_without_a_reward_has_null_and_a_reason() -> None:
    played = trajectory()
    pairs: tuple[Pair, ...] = (
        (played, None),
        (played, Scored(played.id, {}, (), Unscored("late"))),
    )
    stored = Episodes("run:demo@7", "demo, step 7", pairs, no_pieces)
    episodes = json.loads(json.dumps(episodes_json(stored, 2, by_episode(pairs))))["shown"]
    assert [(each["reward"], each["unscored"]) for each in episodes] == [
        (None, None),
        (None, "late"),
    ]
