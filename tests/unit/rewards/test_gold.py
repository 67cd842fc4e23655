"""Which facts are right answers, for all rewards that read one."""

from importlib.util import find_spec

import pytest

from agentfly_core.authoring.reward import Reward
from agentfly_core.records.trajectory import Ending, Problem, Score, Unscored
from agentfly_core.rewards.choice import choice
from agentfly_core.rewards.exact import exact
from agentfly_core.rewards.gold import right_answers
from agentfly_core.rewards.math_answer import math
from agentfly_core.rewards.qa import qa_em, qa_f1
from agentfly_core.testing import rollout_spec
from agentfly_core.testing.episodes import play
from agentfly_core.testing.trajectories import trajectory

REWARDS = [exact, qa_em, qa_f1, choice]
REWARDS += [math] if find_spec("math_verify") else []
OPTIONS = ["72", "13", "0.5"]
SHAPES = [
    ("72", "72"),
    (72, "72"),
    (72.0, "72"),
    (72.0, " 72 "),
    (0.5, "0.5"),
    (["13", "72"], "72"),
    ([13, 72.0], "72"),
    ({"text": ["13", "72"], "answer_start": [1, 5]}, "72"),
    ({"value": "13", "aliases": ["72"], "normalized_aliases": ["72"]}, "72"),
    ({"value": "72", "aliases": []}, "72"),
]
REFUSED = [
    *(None, True, "", "  ", [], ["72", ""], ["72", None], [["72"]], float("nan")),
    *({"text": []}, {"text": [None]}, {"aliases": ["72"]}, {"value": None, "aliases": ["72"]}, {}),
    {"value": "72", "aliases": "seventy-two"},
]


@pytest.mark.parametrize("reward", REWARDS, ids=lambda reward: reward.name)
@pytest.mark.parametrize(("fact", "answer"), SHAPES, ids=range(len(SHAPES)))
async def test_answers_of_published_datasets_are_read(
    reward: Reward, fact: object, answer: str
) -> None:
    problem = Problem("p", "How many?", {"answer": fact, "options": OPTIONS})
    for text, value in ((answer, 1.0), ("no idea", 0.0)):
        episode = trajectory(problem=problem, answered=text)
        assert await reward.score(episode, {}) == Score(value)


@pytest.mark.parametrize("reward", REWARDS, ids=lambda reward: reward.name)
async def test_any_other_fact_leaves_the_episode_unscored(reward: Reward) -> None:
    for fact in REFUSED:
        problem = Problem("p", "How many?", {"answer": fact, "options": OPTIONS})
        result = await reward.score(trajectory(problem=problem, answered="72"), {})
        assert isinstance(result, Unscored) and "facts['answer'] is" in result.reason, fact


def test_numbers_are_written_without_exponent_or_zero_fraction() -> None:
    written = {72.0: ["72", "72.0"], 1e-05: ["0.00001", "1e-05"], 1e22: [str(10**22), "1e+22"]}
    for number, texts in written.items():
        assert right_answers(Problem("p", "?", {"answer": number})) == texts


@pytest.mark.parametrize("reward", REWARDS, ids=lambda reward: reward.name)
async def test_a_reply_cut_by_the_token_limit_is_no_answer(reward: Reward) -> None:
    problem = Problem("p", "What is 3 * 41?", {"answer": "12", "options": ["12", "123"]})
    for max_tokens, value, answer in ((2, 0.0, None), (100, 1.0, "12")):
        spec = rollout_spec(max_tokens=max_tokens)
        episode = await play(["123" if max_tokens == 2 else "12"], problem=problem, spec=spec)
        assert (episode.ending, episode.answer) == (Ending.NO_TOOL_CALLS, answer)
        assert await reward.score(episode, {}) == Score(value)
