"""Types that a reward may return."""

import functools
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import pytest

from agentfly_core.authoring.reward import Reward, reward
from agentfly_core.records.trajectory import (
    Group,
    Score,
    Trajectory,
)


def in_turn(trajectory: Trajectory) -> Iterator[float]:
    yield 1.0


async def later(trajectory: Trajectory) -> AsyncIterator[float]:
    yield 1.0


class Yields:
    def __call__(self, trajectory: Trajectory) -> Iterator[float]:
        yield 1.0


@pytest.mark.parametrize(
    "function", [in_turn, later, Yields(), Yields, functools.partial(in_turn)], ids=range(5)
)
def test_a_generator_is_no_reward(function: Any) -> None:
    with pytest.raises(ValueError, match=r"generator function.*`yield`"):
        _ = reward(function).signature


def returning(annotation: Any, kind: Any = Trajectory) -> Reward:
    def graded(episode: Any) -> Any:
        return 1.0

    graded.__annotations__ = {"episode": kind, "return": annotation}
    return reward(graded)


@pytest.mark.parametrize(
    "annotation",
    [str, None, list[float], dict[str, float], "str", bytes],
    ids=str,
)
def test_a_return_type_that_is_no_score_is_refused(annotation: Any) -> None:
    with pytest.raises(ValueError, match=r"'graded' is annotated.*, expected a number"):
        _ = returning(annotation).signature


@pytest.mark.parametrize("annotation", [float, str, dict[str, float]], ids=str)
def test_a_reward_that_compares_returns_a_list_of_scores(annotation: Any) -> None:
    with pytest.raises(ValueError, match="numbers or Scores"):
        _ = returning(annotation, Group).signature


@pytest.mark.parametrize(
    ("annotation", "kind"),
    [
        *[(one, Trajectory) for one in (float, int, bool, Score, "float", Score | float, Any)],
        *[(one, Trajectory) for one in (np.float32, Fraction, Literal[0, 1], Awaitable[float])],
        *[(one, Group) for one in (list[float], Sequence[Score], np.ndarray, list, Any)],
        (tuple[float, ...], Group),
    ],
    ids=str,
)
def test_every_return_type_of_scores_is_accepted(annotation: Any, kind: Any) -> None:
    assert returning(annotation, kind).signature.lent == {"episode": kind}
