"""Vaults, their demonstrations, and forks at the lamp."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pytest

from agentfly_core.config.episodes import Branching, Rollout
from agentfly_core.inference.sampler import Request
from agentfly_core.inference.scripted import Scripted
from agentfly_core.pipeline.playing import of_step
from agentfly_core.recipes.arpo.vault import HANDLES, LAMPS, Vault, vaults
from agentfly_core.records.trajectory import Sampled, Score, Trajectory
from agentfly_core.testing.episodes import play_all
from benchmarks.arpo import Training, by_problem, ratio
from tests.support.shipped_demonstrations import Played


class Uncertain(Scripted):
    """Replies of demonstrations, of which those after the lamp have an entropy."""

    async def sample(self, request: Request) -> Sampled:
        sampled = await super().sample(request)
        seen = request.conversation.messages[-1].content
        entropy = 1.4 if seen.startswith("lamp") else 0.0
        return replace(sampled, entropies=(entropy,) * len(sampled.tokens))


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Played:
    return Played("arpo", tmp_path_factory.mktemp("arpo"))


def rewards(played: Sequence[Trajectory]) -> list[float]:
    scores = [score for one in played for score in one.observed.values()]
    return [score.value for score in scores if isinstance(score, Score)]


async def test_a_vault_opens_in_the_direction_of_its_lamp() -> None:
    (problem,) = vaults(seed=1, train=1, validation=0, test=0)["train"]
    for way in ("left", "right", "up", "down"):
        vault = Vault()
        await vault.reset(problem)
        seen = [vault.turn(way) for _ in range(HANDLES)]
        assert seen.index(f"lamp {problem.facts['lamp']}") == problem.facts["handle"] - 1
        assert vault.opened is (way == problem.facts["direction"])


def test_splits_share_directions_and_no_vault() -> None:
    splits = vaults(seed=2, train=300, validation=50, test=50)
    problems = [problem for split in splits.values() for problem in split]
    assert len({problem.id for problem in problems}) == 400
    pairs = {(problem.facts["lamp"], problem.facts["direction"]) for problem in problems}
    assert len(pairs) == len(LAMPS)
    assert {problem.facts["handle"] for problem in problems} == {2, 3, 4, 5}
    assert all(problem.facts["lamp"] not in problem.prompt for problem in problems)


def test_vaults_have_the_first_lamps_only() -> None:
    problems = vaults(seed=2, train=50, validation=0, test=0, lamps=2)["train"]
    assert {problem.facts["lamp"] for problem in problems} == {*LAMPS[:2]}


def test_too_many_vaults_are_refused() -> None:
    with pytest.raises(ValueError, match="9,000 vaults"):
        vaults(seed=1, train=9_000, validation=0, test=1)


@pytest.mark.slow
async def test_unspoilt_demonstrations_open_all_vaults(shipped: Played) -> None:
    played = [episode[0] for episode in await shipped.episodes(0.0)]
    assert rewards(played) == [1.0] * len(played)
    assert {len(one.turns) for one in played} == {HANDLES + 1}


@pytest.mark.slow
async def test_spoilt_demonstrations_open_a_quarter(shipped: Played) -> None:
    earned = rewards([episode[0] for episode in await shipped.episodes(1.0)])
    assert 0 < sum(earned) < len(earned) / 2


@pytest.mark.slow
async def test_forks_are_at_the_lamp_and_save_calls(shipped: Played) -> None:
    rule = shipped.spec.branching
    assert rule is not None
    spec = replace(shipped.spec, branching=replace(rule, alpha=0.0))
    encode = partial(shipped.tokenizer.encode, add_special_tokens=False)
    policy = shipped.shown({"spoilt": 1.0}, shipped.problems, 0)
    sampler = Uncertain(encode, spec.template.stop_tokens[0], policy)
    rollout = Rollout(branching=Branching(total=4, init=2))
    specs = of_step(rollout, (0, 7), shipped.problems[:10], 7, greedy=False)
    played, _, metrics = await play_all(specs, spec, sampler)
    forks = [one for one in played if one.branch]
    assert len(forks) == 20
    assert all(one.branch.turns == one.problem.facts["handle"] for one in forks if one.branch)
    whole = 20 * HANDLES
    assert metrics["branching/executed_calls"] == whole + sum(
        HANDLES - one.problem.facts["handle"] for one in forks
    )


def training(later: float) -> Training:
    """One problem is solved after 100 calls, and both by `later` after 300."""
    solved = {0: {"a": 0.0, "b": 0.0}, 1: {"a": 1.0, "b": 0.0}, 2: {"a": later, "b": later}}
    return Training(solved, {1: 100, 2: 200}, decisions=0, forks=0)


def test_calls_until_the_goal_are_interpolated() -> None:
    # 0.5 after 100 calls and 1 after 300 calls are 0.8 at three fifths of the way
    assert training(1.0).until_goal == pytest.approx(100 + 0.6 * 200)
    assert training(1.0).until(["a", "a"]) == pytest.approx(80)
    assert training(0.7).until_goal == math.inf


def test_equal_runs_have_a_ratio_of_1_for_all_draws() -> None:
    assert ratio([training(1.0)], [training(1.0)]) == ("1.00", "-", "1.00 to 1.00")
    assert ratio([training(1.0)], [training(0.7)]) == ("-", "-", "-")
    cheap = replace(training(1.0), calls={1: 50, 2: 200})
    low, high = by_problem([(cheap, training(1.0))])
    assert low == pytest.approx(0.5) and 0.5 < high < 1
