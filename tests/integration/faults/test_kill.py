"""A run can be killed at any moment; continued, it ends with the very bytes of a run that was never
killed.
"""

import random
import shutil
from pathlib import Path

import pytest

from tests.support.killed_commands import (
    KILLED,
    RUN,
    TRAIN,
    Lives,
    Whole,
    digests,
    ledger,
    moments_to_die,
    summary,
)

Words = tuple[str, ...]
PPO = "algorithm={use: ppo, kl: {use: adaptive}}"
CORRECTED = "algorithm={use: ppo, kl: {use: adaptive}, correction: icepop}"
OLDER = "rollout.max_staleness=1"


def assert_same(folder: Path, whole: Whole) -> None:
    assert digests(folder) == digests(whole.folder)
    assert ledger(folder).equals(ledger(whole.folder))
    assert summary(folder) == summary(whole.folder)


def test_a_run_killed_at_three_moments_has_equal_bytes(
    begun: Path, lives: Lives, whole: Whole
) -> None:
    moments = ("rollout 1 5", f"publish {RUN}/steps/000001/learner", "update 3 1")
    lives.survive(begun, TRAIN, moments)
    assert_same(begun, whole)


@pytest.mark.long
def test_a_run_killed_at_every_moment_has_equal_bytes(
    tmp_path: Path, lives: Lives, whole: Whole
) -> None:
    lives.survive(tmp_path, TRAIN, moments_to_die(whole.end.moments))
    assert_same(tmp_path, whole)


@pytest.mark.long
def test_a_kill_before_the_learner_state_keeps_equal_bytes(
    begun: Path, lives: Lives, whole: Whole
) -> None:
    end = lives.run(begun, *TRAIN, at=f"publish {RUN}/steps/000001/learner")
    assert end.code == KILLED, end.printed
    end = lives.run(begun, *TRAIN)
    assert end.code == 0, end.printed
    assert_same(begun, whole)


@pytest.mark.long
def test_a_run_with_a_lost_policy_has_equal_bytes(
    at_step_2: Path, lives: Lives, whole: Whole
) -> None:
    shutil.rmtree(at_step_2 / RUN / "steps/000002/policy")
    end = lives.run(at_step_2, *TRAIN)
    assert end.code == 0, end.printed
    assert_same(at_step_2, whole)


@pytest.mark.long
def test_a_run_killed_at_random_moments_has_equal_bytes(
    begun: Path, lives: Lives, whole: Whole
) -> None:
    draw = random.Random(1)
    ends = [lives.run(begun, *TRAIN, opening=draw.randrange(whole.end.opened)) for _ in range(3)]
    assert KILLED in [end.code for end in ends]
    end = lives.run(begun, *TRAIN)
    assert end.code == 0, end.printed
    assert_same(begun, whole)


@pytest.mark.parametrize(
    ("overrides", "moments"),
    [
        pytest.param(
            (CORRECTED, OLDER, "update.mini_batches=2", "adapter={rank: 4}", "steps=2"),
            ("update 2 1",),
            id="a critic, an adaptive penalty, an adapter and older policies",
            marks=pytest.mark.long,
        ),
        pytest.param(
            ("algorithm={use: remax, correction: icepop}", OLDER),
            (f"publish {RUN}/steps/000002/policy", "update 3 1"),
            id="greedy baselines and older policies",
            marks=pytest.mark.long,
        ),
        pytest.param(
            (PPO, "update.mini_batches=2", "adapter={rank: 4}"),
            (f"publish {RUN}/steps/000002/learner", "update 3 1"),
            id="a critic, an adaptive penalty and an adapter",
            marks=pytest.mark.long,
        ),
    ],
)
def test_inputs_of_other_algorithms_survive_a_kill(
    begun: Path,
    lives: Lives,
    tmp_path_factory: pytest.TempPathFactory,
    overrides: Words,
    moments: Words,
) -> None:
    whole = tmp_path_factory.mktemp("other") / "whole"
    shutil.copytree(begun, whole)
    end = lives.run(whole, *TRAIN, *overrides)
    assert end.code == 0, end.printed
    lives.survive(begun, (*TRAIN, *overrides), moments)
    assert digests(begun) == digests(whole)
    assert ledger(begun).equals(ledger(whole))


REFILLS = ("algorithm=dapo", "rewards={'agentfly_core.rewards.exact:exact': 1.0}", "steps=2")


@pytest.fixture(scope="module")
def refilled(lives: Lives, whole: Whole, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run that has refilled steps."""
    folder = tmp_path_factory.mktemp("refilled")
    shutil.copytree(whole.folder / "artifacts", folder / "artifacts")
    end = lives.run(folder, *TRAIN, *REFILLS)
    assert end.code == 0, end.printed
    return folder


@pytest.mark.long
def test_a_step_is_refilled_within_its_budget(refilled: Path) -> None:
    for _, step in ledger(refilled).groupby("step"):
        used = (step["outcome"] == "used").tolist()
        assert step["problem"].is_unique
        assert sum(used) <= 2
        assert len(used) > 2, "this policy seldom solves a problem, and seldom fails at one"
        assert sum(used) == 2 or len(used) >= 2 + 1 + 1, (
            "it continued until both were found or two rounds were over"
        )


@pytest.mark.long
def test_a_kill_amid_a_refill_changes_nothing(begun: Path, lives: Lives, refilled: Path) -> None:
    lives.survive(begun, (*TRAIN, *REFILLS), [f"publish {RUN}/steps/000001/scored-1"])
    assert digests(begun) == digests(refilled)
