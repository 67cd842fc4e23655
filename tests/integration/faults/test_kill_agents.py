"""Runs with folded contexts or two speakers end with the same bytes after a kill at any moment."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from agentfly_core.records.parquet import EPISODES, read_trajectories
from agentfly_core.records.trajectory import Trajectory
from tests.support.killed_commands import (
    RUN,
    TRAIN,
    Lives,
    Whole,
    digests,
    ledger,
    moments_to_die,
)

LIMITS = "max_turns: 4, max_tokens: 16, max_model_len: 256"
COMMON = (
    "template={use: 'tests.support.eager_speakers:Eager', show_tools: false}",
    "rewards={'tests.support.eager_speakers:lot': 1.0}",
    "evaluate.goal=tests.support.eager_speakers:lot",
    "warm_start=null",
    "steps=2",
)
FOLDING = (
    f"agent={{use: 'agentfly_core.agents.folding:Folding', budget: 1, {LIMITS}}}",
    *COMMON,
)
TWO = (
    f"agent={{use: 'agentfly_core.agents.planner_executor:PlannerExecutor', {LIMITS}}}",
    "algorithm={use: grpo, correction: token_tis}",
    "rollout.max_staleness=1",
    *COMMON,
)


def played(folder: Path) -> Iterator[Trajectory]:
    """Trajectories of the run's steps."""
    for path in sorted((folder / RUN / "steps").glob(f"*/rollout-*/{EPISODES}")):
        yield from read_trajectories(path)


def uninterrupted(lives: Lives, folder: Path, words: tuple[str, ...]) -> Whole:
    end = lives.run(folder, *TRAIN, *words)
    assert end.code == 0, end.printed
    return Whole(folder, end)


@pytest.fixture(scope="module")
def folding(lives: Lives, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """A run with episodes of several contexts."""
    whole = uninterrupted(lives, tmp_path_factory.mktemp("folding") / "whole", FOLDING)
    assert any(turn.context for one in played(whole.folder) for turn in one.turns)
    return whole


@pytest.fixture(scope="module")
def two(lives: Lives, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """A run with episodes of two speakers with older policies."""
    whole = uninterrupted(lives, tmp_path_factory.mktemp("two") / "whole", TWO)
    episodes = [one for one in played(whole.folder) if one.turns]
    assert {one.agent for one in episodes} == {"planner", "executor"}
    assert any(turn.context for one in episodes for turn in one.turns)
    return whole


def assert_same_after(
    lives: Lives, folder: Path, whole: Whole, words: tuple[str, ...], *moments: str
) -> None:
    """A run that is killed at each of these moments ends like an uninterrupted one."""
    lives.survive(folder, (*TRAIN, *words), moments)
    assert digests(folder) == digests(whole.folder)
    assert ledger(folder).equals(ledger(whole.folder))


@pytest.mark.long
@pytest.mark.parametrize(("name", "words"), [("folding", FOLDING), ("two", TWO)])
def test_contexts_and_speakers_survive_kills_with_equal_bytes(
    name: str,
    words: tuple[str, ...],
    lives: Lives,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    whole: Whole = request.getfixturevalue(name)
    assert_same_after(lives, tmp_path, whole, words, *moments_to_die(whole.end.moments))
