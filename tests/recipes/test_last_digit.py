"""Calculations in steps and their demonstrations."""

import pytest

from agentfly_core.recipes.last_digit.dataset import calculations, digits
from tests.support.shipped_demonstrations import Played, scores


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    return Played("last-digit", tmp_path_factory.mktemp("last-digit"))


def test_digits_are_those_of_the_results() -> None:
    assert digits("3+4*7+1") == ["7", "9", "0"]


def test_a_calculation_is_asked_with_its_last_digit() -> None:
    for problem in calculations(0, 20, 0, 0, steps=3)["train"]:
        first, *steps = problem.prompt.split(" is ")[1].split(",")[0].split()[4:]
        value = int(first)
        for step in steps:
            value = value + int(step[1]) if step[0] == "+" else value * int(step[1])
        assert problem.facts["answer"] == str(value)[-1]
        assert problem.id == "".join([first, *steps])


def test_no_calculation_is_in_two_splits() -> None:
    splits = calculations(0, 400, 20, 50)
    assert [len(problems) for problems in splits.values()] == [400, 20, 50]
    assert len({one.id for problems in splits.values() for one in problems}) == 470


def test_less_than_one_step_is_refused() -> None:
    with pytest.raises(ValueError, match=r"data\.steps is 0"):
        calculations(0, 1, 0, 0, steps=0)


@pytest.mark.slow
async def test_unspoilt_demonstrations_reason_and_are_right(played: Played) -> None:
    episodes = await played.episodes(0.0)
    assert await scores(episodes) == {1.0}
    for (trajectory,) in episodes:
        (turn,) = trajectory.turns
        steps = turn.reply.reasoning.split()
        assert steps[1::2] == digits(trajectory.problem.id)
        assert "".join([trajectory.problem.id[0], *steps[::2]]) == trajectory.problem.id
        assert turn.reply.content == steps[-1]


@pytest.mark.slow
async def test_spoilt_demonstrations_are_wrong_but_well_formed(played: Played) -> None:
    episodes = await played.episodes(1.0)
    assert await scores(episodes) == {0.0}
    assert all(one.turns[0].reply.content.isdigit() for (one,) in episodes)
