"""A debate of three: its answer, its rewards by debater, and its demonstrations."""

from collections import Counter
from collections.abc import Sequence

import pytest

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.authoring.scoring import score
from agentfly_core.recipes.debate.agents import Debate, majority
from agentfly_core.recipes.debate.rewards import majority_right
from agentfly_core.records.trajectory import Ending, Trajectory
from agentfly_core.testing.episodes import ADD, episode_specs, play_all, rollout_spec, scripted
from tests.support.shipped_demonstrations import Played, scores


async def debate(first: Sequence[str], last: Sequence[str]) -> list[Trajectory]:
    """The episode of debaters with these answers in two rounds."""

    async def says(conversation: Conversation) -> str:
        number = int(conversation.speaker.partition("/")[2] or 1) - 1
        return (first, last)[len(conversation.messages) > 1][number]

    spec = rollout_spec(agent=Debate(debaters=len(first)), max_tokens=10)
    return (await play_all(episode_specs(ADD), spec, scripted(says)))[0]


def answer(episode: Sequence[Trajectory]) -> str | None:
    (text,) = {one.answered for one in episode} - {None}
    return text


async def test_the_majority_of_the_last_answers_counts() -> None:
    assert answer(await debate(["17", "17", "99"], ["99", "17", "99"])) == "99"
    assert answer(await debate(["1", "2", "3"], ["1", "2", "3"])) == "1"


def test_a_debater_without_an_answer_has_no_vote() -> None:
    assert majority(["", "", "99"]) == "99"
    assert majority(["", ""]) == ""


async def test_each_debater_reads_the_answers_of_the_others() -> None:
    episode = await debate(["17", "98", "99"], ["99", "99", "99"])
    read = {one.agent: one.turns[1].read[0].content for one in episode if one.turns}
    assert read == {"debater": "98, 99", "debater/2": "17, 99", "debater/3": "17, 98"}


async def rewards(last: Sequence[str]) -> tuple[float, dict[str, object]]:
    """The value for the episode, and the rewards of the debaters."""
    episode = await debate(["17", "17", "17"], last)
    scored = await score(episode, {majority_right: 1.0}, "debate")
    pairs = zip(episode, scored, strict=True)
    own = {one.agent: s.reward for one, s in pairs if one.speaker == "debater"}
    return scored[0].rewards["majority_right"], own


async def test_a_debater_earns_its_own_last_answer() -> None:
    one_of_three = {"debater": 1.0, "debater/2": 0.0, "debater/3": 0.0}
    assert await rewards(["99", "17", "17"]) == (0.0, one_of_three)
    two_of_three = {"debater": 1.0, "debater/2": 0.0, "debater/3": 1.0}
    assert await rewards(["99", "17", "99"]) == (1.0, two_of_three)


async def test_a_cut_reply_is_no_answer() -> None:
    episode = await debate(["99", "99", "99"], ["99 and more", "17", "17"])
    assert answer(episode) == "17"
    episode = await debate(["99 and more", "1", "2"], ["99", "99", "99"])
    assert (
        next(one for one in episode if one.agent == "debater/2").turns[1].read[0].content == ", 2"
    )


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    return Played("debate", tmp_path_factory.mktemp("debate"))


def firsts(episode: Sequence[Trajectory]) -> list[str | None]:
    """The answers of the first round."""
    return [one.turns[-2].reply.content for one in episode if one.turns]


@pytest.mark.slow
async def test_unspoilt_demonstrations_are_all_right(played: Played) -> None:
    assert await scores(await played.episodes(0.0)) == {1.0}


@pytest.mark.slow
async def test_spoilt_demonstrations_are_wrong_but_well_formed(played: Played) -> None:
    episodes = await played.episodes(1.0)
    assert await scores(episodes) == {0.0}
    for trajectory in (one for episode in episodes for one in episode):
        assert trajectory.ending is Ending.NO_TOOL_CALLS
        assert not any(observation.error for observation in trajectory.observations)


@pytest.mark.slow
async def test_debaters_are_spoilt_on_their_own_and_join_the_majority(played: Played) -> None:
    episodes = await played.episodes(0.4)
    right = [
        [text == episode[0].problem.facts["answer"] for text in firsts(episode)]
        for episode in episodes
    ]
    assert {sum(marks) for marks in right} == {0, 1, 2, 3}
    for episode, marks in zip(episodes, right, strict=True):
        if sum(marks) == 2:
            last = Counter(one.turns[-1].reply.content for one in episode if one.turns)
            assert last == {episode[0].problem.facts["answer"]: 3}
