import asyncio
import functools
import threading
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from agentfly_core.authoring.environment import Environment, ServiceFailure
from agentfly_core.authoring.reward import Reward, reward
from agentfly_core.authoring.scoring import combined, score
from agentfly_core.records.trajectory import (
    Ending,
    Problem,
    Score,
    Scored,
    Trajectory,
    Unscored,
)
from agentfly_core.testing.trajectories import trajectory, turn
from tests.support.waiting import LIMIT


def played(
    name: str = "t1", ending: Ending = Ending.NO_TOOL_CALLS, **observed: Score | Unscored
) -> Trajectory:
    """An episode of two turns with the last reply "99"."""
    turns = [turn([1], {2: 0.0}, reply=text) for text in ("41+58", "99")]
    error = "shop died" if ending is Ending.FAILED else None
    problem = Problem("add-41-58", "What is 41+58?", {"answer": "99"})
    return trajectory(
        *turns, name=name, problem=problem, ending=ending, error=error, observed=observed
    )


@reward
def exact(trajectory: Trajectory) -> float:
    return float(trajectory.answer == trajectory.problem.facts["answer"])


def giving(result: Any) -> Reward:
    def gives(problem: Problem) -> Any:
        return result

    return reward(gives)


async def test_a_reward_is_lent_the_trajectory_and_the_problem() -> None:
    @reward
    async def both(trajectory: Trajectory, problem: Problem) -> bool:
        return trajectory.problem is problem and trajectory.answer == "99"

    assert await both.score(played(), {}) == Score(1.0)
    assert await exact.score(played(), {}) == Score(1.0)
    assert exact(played()) == 1.0


@pytest.mark.parametrize(
    ("result", "value"),
    [
        (1, 1.0),
        (True, 1.0),
        (0.25, 0.25),
        (np.float32(0.5), 0.5),
        (np.int64(2), 2.0),
        (Score(-1), -1.0),
        (Fraction(1, 4), 0.25),
    ],
)
async def test_a_reward_may_return_any_finite_number_or_a_score(result: Any, value: float) -> None:
    assert await giving(result).score(played(), {}) == Score(value)


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (None, "got None (NoneType)"),
        (float("nan"), "got nan (float)"),
        (float("-inf"), "got -inf (float)"),
        ("1.0", "got '1.0' (str)"),
        ({"reward": 1.0}, "got {'reward': 1.0} (dict)"),
        (1j, "got 1j (complex)"),
        (1.1e15, "got 1100000000000000.0 (float)"),
        (-(10**16), "got -10000000000000000 (int)"),
        (Decimal("1e400"), "got Decimal('1E+400') (Decimal)"),
        (Decimal("nan"), "got Decimal('NaN') (Decimal)"),
        (np.float32("inf"), "got np.float32(inf) (float32)"),
        (Score(1.0, parts={"format": float("nan")}), "got nan (float)"),
        (Score(1.0, per_turn=(0.0, 1e300)), "got 1e+300 (float)"),
    ],
)
async def test_what_is_no_finite_number_is_unscored_and_never_zero(
    result: Any, reason: str
) -> None:
    expected = f"gives: {reason}, expected a finite number, from -1e+15 to 1e+15"
    assert await giving(result).score(played(), {}) == Unscored(expected)


async def test_an_integer_too_long_for_a_float_is_unscored() -> None:
    for huge in (10**400, Fraction(10**400), 10**5000):
        unscored = await giving(huge).score(played(), {})
        assert isinstance(unscored, Unscored)
        assert unscored.reason.endswith("expected a finite number, from -1e+15 to 1e+15")


async def test_turn_rewards_are_as_many_as_turns() -> None:
    three = giving(Score(1.0, per_turn=(1.0, 0.0, 0.0)))
    assert await three.score(played(), {}) == Unscored(
        "gives: per_turn has the length 3, expected 2 (one value per turn)"
    )


def raising(error: BaseException) -> Reward:
    def raises(trajectory: Trajectory) -> float:
        raise error

    return reward(raises)


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (KeyError("answer"), "raises: KeyError: 'answer'"),
        (Mute(), "raises: Mute: str() failed with RuntimeError"),
        (SystemExit(Mute()), "raises: RuntimeError: it called exit(Mute())"),
        (TimeoutError(), "raises: TimeoutError, without a message"),
        (SystemExit(1), "raises: RuntimeError: it called exit(1)"),
        (ValueError("half \ud83d pair"), "raises: ValueError: half ? pair"),
    ],
)
async def test_a_reward_that_raises_leaves_its_trajectory_unscored(
    error: BaseException, reason: str
) -> None:
    found = await raising(error).score(played(), {})
    assert isinstance(found, Unscored)
    assert found.reason.startswith(f"{reason}, at {__file__}:") and found.reason[-7:] == " raises"


async def test_a_reward_that_hangs_leaves_its_trajectory_unscored() -> None:
    @reward(timeout=0.01)
    async def hangs(trajectory: Trajectory) -> float:
        await asyncio.Event().wait()
        return 1.0

    assert await hangs.score(played(), {}) == Unscored("hangs: Overdue: no result within 0.01 s")


class Shelf(Environment): ...


@reward
async def sees(shelf: Shelf) -> float:
    return 1.0


def test_a_reward_says_which_environments_it_needs() -> None:
    assert sees.needs == {"shelf": Shelf}
    assert exact.needs == {}


def test_a_reward_that_asks_for_anything_else_is_refused() -> None:
    @reward
    def graded(trajectory: Trajectory, answer: str) -> float:
        return 1.0

    with pytest.raises(ValueError, match=r"no value for answer\. .* trajectory\.problem\.facts"):
        _ = graded.needs


async def test_the_reward_is_the_weighted_sum_and_each_part_is_kept() -> None:
    half = giving(Score(0.5, parts={"readable": 1.0, "answered": 0.0}))
    assert await score([played()], {exact: 1.0, half: 0.2}) == [
        Scored(
            "t1",
            {"exact": 1.0, "gives": 0.5, "gives/readable": 1.0, "gives/answered": 0.0},
            (),
            1.1,
        )
    ]


def test_turn_rewards_are_weighted_and_added_turn_by_turn() -> None:
    found = {
        "a": (1.0, Score(1.0, per_turn=(0.0, 1.0))),
        "b": (0.5, Score(2.0, per_turn=(2.0, 0.0))),
        "c": (3.0, Score(1.0)),
    }
    assert combined("t1", found) == Scored("t1", {"a": 1.0, "b": 2.0, "c": 1.0}, (1.0, 1.0), 5.0)


@pytest.mark.parametrize(
    "found",
    [
        {"a": (10.0, Score(1e308))},
        {"a": (1.0, Score(9e14)), "b": (1.0, Score(9e14))},
        {"a": (1e308, Score(1e10)), "b": (-1e308, Score(1e10))},
        {
            "a": (1.0, Score(1.0, per_turn=(1e15, 1.0))),
            "b": (-1.0, Score(1.0, per_turn=(-1e15, 1.0))),
        },
    ],
)
def test_an_infinite_sum_is_unscored_and_names_weights_and_rewards(
    found: dict[str, Any],
) -> None:
    scored = combined("t1", found)
    assert isinstance(scored.reward, Unscored)
    terms = " + ".join(
        f"{weight:g} x {score.value:g} ({name})" for name, (weight, score) in found.items()
    )
    assert (
        f"the weighted sum of the rewards ({terms}), or of the rewards of one turn, is not"
        in scored.reward.reason
    )
    assert scored.rewards == {name: score.value for name, (_, score) in found.items()}


async def test_one_failing_reward_leaves_all_other_trajectories_scored() -> None:
    @reward
    def picky(trajectory: Trajectory) -> float:
        if trajectory.id == "t2":
            raise RuntimeError("no judge")
        return 1.0

    scores = await score([played("t1"), played("t2"), played("t3")], {exact: 1.0, picky: 1.0})
    assert [s.trajectory_id for s in scores] == ["t1", "t2", "t3"]
    first, failed, last = (s.reward for s in scores)
    assert (first, last) == (2.0, 2.0)
    assert isinstance(failed, Unscored) and "picky: RuntimeError: no judge, at " in failed.reason
    assert scores[1].rewards == {"exact": 1.0}


async def test_a_failed_episode_is_unscored_whatever_its_last_reply_says() -> None:
    (scored,) = await score([played(ending=Ending.FAILED)], {exact: 1.0})
    assert scored == Scored("t1", {}, (), Unscored("episode failed: shop died"))


async def test_a_reward_observed_in_the_episode_comes_from_the_record() -> None:
    (scored,) = await score([played(sees=Score(0.75))], {sees: 2.0})
    assert scored == Scored("t1", {"sees": 0.75}, (), 1.5)


async def test_a_reward_that_was_not_observed_is_missing_and_not_zero() -> None:
    (missing,) = await score([played()], {sees: 1.0})
    assert missing.reward == Unscored(
        "sees: this reward needs an environment, which exists only during the episode; play new "
        "episodes with this reward"
    )
    (failed,) = await score([played(sees=Unscored("sees: KeyError: 'x'"))], {sees: 1.0})
    assert failed.reward == Unscored("sees: KeyError: 'x'")


async def test_a_reward_with_a_lost_service_fails_one_trajectory() -> None:
    (scored,) = await score([played()], {raising(ServiceFailure("judge is down")): 1.0})
    assert scored.reward == Unscored("raises: ServiceFailure: judge is down")


async def test_synchronous_rewards_run_at_the_same_time() -> None:
    together = threading.Barrier(8, timeout=LIMIT)  # opens only when 8 threads stand at it

    @reward
    def meets(trajectory: Trajectory) -> float:
        return float(together.wait() >= 0)

    scores = await score([played(f"t{i}") for i in range(8)], {meets: 1.0})
    assert [s.reward for s in scores] == [1.0] * 8


def flaky(failures: int, **limits: Any) -> tuple[Reward, list[str]]:
    """A reward with a service that fails several times first; it records its questions."""
    asked: list[str] = []

    @reward(backoff=0.0, **limits)
    async def judge(problem: Problem) -> float:
        asked.append(problem.id)
        if len(asked) <= failures:
            raise ServiceFailure("503")
        return 0.5

    return judge, asked


async def test_a_reward_with_a_failing_service_is_retried_to_its_limit() -> None:
    patient, asked = flaky(2, retries=2)
    assert [one.reward for one in await score([played()], {patient: 1.0})] == [0.5]
    assert len(asked) == 3
    hasty, asked = flaky(2, retries=1)
    (found,) = await score([played()], {hasty: 1.0})
    assert found.reward == Unscored("judge: ServiceFailure: 503")
    assert len(asked) == 2


async def test_the_waits_between_retries_double_up_to_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waited: list[float] = []

    async def note(seconds: float) -> None:
        waited.append(seconds)

    impatient, _ = flaky(9, retries=7)
    monkeypatch.setattr(asyncio, "sleep", note)
    await score([played()], {replace(impatient, backoff=1.0): 1.0})
    assert waited == [1, 2, 4, 8, 16, 30, 30]


async def test_a_wrong_or_late_reward_is_not_retried() -> None:
    calls: list[str] = []

    @reward(retries=3, timeout=0.01, backoff=0.0)
    async def late() -> float:
        calls.append("late")
        await asyncio.Event().wait()
        return 1.0

    @reward(retries=3, backoff=0.0)
    async def wrong() -> float:
        calls.append("wrong")
        raise KeyError("answer")

    (found,) = await score([played()], {late: 1.0, wrong: 1.0})
    assert isinstance(found.reward, Unscored)
    assert found.reward.reason.startswith(
        "late: Overdue: no result within 0.01 s; wrong: KeyError: 'answer', at "
    )
    assert calls == ["late", "wrong"]


@pytest.mark.parametrize(("concurrency", "expected"), [(3, 3), (40, 40), (None, 32)])
async def test_no_more_calls_of_a_reward_are_made_at_a_time_than_it_says(
    concurrency: int | None, expected: int
) -> None:
    busy, most, full = [0], [0], asyncio.Event()

    @reward(concurrency=concurrency)
    async def judge() -> float:
        busy[0] += 1
        most[0] = max(most[0], busy[0])
        if busy[0] == expected:
            full.set()
        await full.wait()
        busy[0] -= 1
        return 1.0

    episodes = [played(f"t{number}") for number in range(80)]
    assert {one.reward for one in await score(episodes, {judge: 1.0})} == {1.0}
    assert most == [expected]


def weighed(factor: float, trajectory: Trajectory, *, most: float = 1.0) -> float:
    return min(most, factor * float(trajectory.answer or "0"))


async def test_a_partial_is_a_reward_named_after_its_function() -> None:
    part = reward(functools.partial(weighed, 0.5, most=20.0))
    assert (part.name, await part.score(played(), {})) == ("weighed", Score(20.0))


async def test_a_rewards_error_carries_file_and_line() -> None:
    @reward
    def broken(trajectory: Trajectory) -> float:
        return float(trajectory.problem.facts["missing"])

    line = broken.function.__code__.co_firstlineno + 2
    assert await broken.score(played(), {}) == Unscored(
        f"broken: KeyError: 'missing', at {__file__}:{line} in broken"
    )
