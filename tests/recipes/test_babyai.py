"""Missions in grids, their oracle and their baselines."""

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.datasets.players import observed
from agentfly_core.inference.random_policy import random_policy
from agentfly_core.inference.scripted import ScriptedPolicy
from agentfly_core.recipes.babyai.dataset import LEVELS, babyai, things
from agentfly_core.recipes.babyai.demonstrations import Goal, named, solvable
from agentfly_core.recipes.babyai.demonstrations import babyai as oracle
from agentfly_core.recipes.babyai.environment import ACTIONS, BabyAI, level, view_text
from agentfly_core.recipes.babyai.environment import mission as mission_of
from agentfly_core.recipes.babyai.rewards import mission
from agentfly_core.recipes.babyai.tools import act
from agentfly_core.records.messages import call_text
from agentfly_core.records.trajectory import Problem, Trajectory
from tests.support import task_checks

pytestmark = pytest.mark.slow

pytest.importorskip("minigrid")


@pytest.fixture(scope="module")
def hundred() -> list[Problem]:
    """A held-out mission of each of a hundred seeds, a third of them of each level."""
    levels = [LEVELS[seed % len(LEVELS)] for seed in range(100)]
    return [babyai(seed, 0, 0, 1, levels=[name])["test"][0] for seed, name in enumerate(levels)]


@pytest.fixture(scope="module")
def tokenizer(nano: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(nano)


async def played(
    problems: Sequence[Problem], policy: ScriptedPolicy, tokenizer: PreTrainedTokenizerBase
) -> list[Trajectory]:
    return await task_checks.played(problems, policy, [act], tokenizer, [BabyAI], [mission], 12)


async def test_the_oracle_completes_missions_from_its_observations(
    hundred: list[Problem], tokenizer: PreTrainedTokenizerBase
) -> None:
    trajectories = await played(hundred, oracle(hundred, 0, 0.0), tokenizer)
    assert task_checks.observed_success(trajectories, mission) == 1.0
    assert not any(o.error for trajectory in trajectories for o in trajectory.observations)


@pytest.mark.parametrize(
    ("name", "seed", "mission", "is_solvable"),
    [
        ("BabyAI-PickupDist-v0", 1878657141, None, False),  # other things enclose it
        ("BabyAI-GoToLocal-v0", 1984627255, "go to the grey key", False),  # it takes 15 calls
        ("BabyAI-PutNextLocalS6N4-v0", 119985226, "put the red key next to the purple box", True),
        ("BabyAI-PickupDist-v0", 1878657141, "pick up a key on your left", True),
        ("BabyAI-PickupDist-v0", 1878657141, "open the red door", True),
    ],
)
def test_unsolvable_missions_are_detected(
    name: str, seed: int, mission: str | None, is_solvable: bool
) -> None:
    grid = level(name)
    own_mission = mission_of(grid, seed)
    assert solvable(grid, mission or own_mission, view_text(grid)) is is_solvable


def test_the_dataset_skips_unsolvable_missions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (first,) = babyai(0, 1, 0, 0)["train"]

    def other(grid: object, mission: str, seen: str) -> bool:
        return f"{mission}\n{seen}" != first.prompt

    monkeypatch.setattr("agentfly_core.recipes.babyai.dataset.solvable", other)
    (second,) = babyai(0, 1, 0, 0)["train"]
    assert first.prompt != second.prompt


def test_missions_of_several_rooms_are_kept() -> None:
    grid = level("BabyAI-GoTo-v0")
    assert solvable(grid, mission_of(grid, 0), view_text(grid))


async def test_random_calls_complete_almost_no_mission(
    hundred: list[Problem], tokenizer: PreTrainedTokenizerBase
) -> None:
    assert (
        task_checks.observed_success(await played(hundred, random_policy, tokenizer), mission)
        <= 0.1
    )


async def test_spoilt_episodes_complete_almost_no_mission(
    hundred: list[Problem], tokenizer: PreTrainedTokenizerBase
) -> None:
    spoilt = await played(hundred[:40], oracle(hundred, 0, 1.0), tokenizer)
    assert task_checks.observed_success(spoilt, mission) <= 0.1


@pytest.mark.parametrize("seeds", [range(1), pytest.param(range(1, 4), marks=pytest.mark.long)])
async def test_fixed_calls_complete_almost_no_mission(
    hundred: list[Problem], tokenizer: PreTrainedTokenizerBase, seeds: range
) -> None:
    best = 0.0
    for seed in seeds:
        draw = random.Random(seed)
        calls = [(draw.choice(ACTIONS[:4]), draw.randint(1, 6)) for _ in range(12)]

        async def unread(
            conversation: Conversation, calls: Sequence[tuple[str, int]] = calls
        ) -> str:
            action, times = calls[len(observed(conversation))]
            return call_text("act", action=action, times=times)

        best = max(
            best, task_checks.observed_success(await played(hundred, unread, tokenizer), mission)
        )
    assert best <= 0.15


def test_splits_never_share_an_object() -> None:
    names: dict[str, set[str]] = {"train": set(), "validation": set(), "test": set()}
    for seed in (0, 1):
        for split, problems in babyai(seed, 60, 20, 20).items():
            for problem in problems:
                names[split] |= {*named(problem.facts["mission"])}
    for split, objects in names.items():
        assert objects <= {*things()[split]}
    for one, other in combinations(names.values(), 2):
        assert not one & other


def test_a_view_lists_rows_walls_and_the_carried_object() -> None:
    grid = level("BabyAI-PutNextLocalS6N4-v0")
    assert mission_of(grid, 119985226) == "put the red key next to the purple box"
    assert view_text(grid) == (
        "purple box 1 ahead 2 right, red key 2 ahead, green box 2 ahead 1 right, "
        "grey key 3 ahead 3 right; wall 4 ahead, 1 left"
    )
    for action in ("go forward", "pick up"):
        grid.step(ACTIONS.index(action))
    assert view_text(grid) == (
        "purple box 2 right, green box 1 ahead 1 right, grey key 2 ahead 3 right; "
        "wall 3 ahead, 1 left; you carry a red key"
    )


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'GoTo', .*BabyAI-Action"):
        babyai(0, 1, 1, 1, levels=["GoTo"])


def test_missions_without_an_object_of_the_split_are_refused() -> None:
    with pytest.raises(ValueError, match=r"'go to (a|the) red ball'"):
        babyai(0, 0, 1, 0, levels=["BabyAI-GoToRedBall-v0"])


async def test_problems_of_another_minigrid_version_are_refused(
    hundred: list[Problem],
) -> None:
    problem = replace(hundred[0], facts={**hundred[0].facts, "mission": "go to the sun"})
    with pytest.raises(ValueError, match="'go to the sun'"):
        await BabyAI().reset(problem)


async def test_equal_states_have_equal_names(
    hundred: list[Problem],
) -> None:
    one, other = BabyAI(), BabyAI()
    for babyai_ in (one, other):
        await babyai_.reset(hundred[1])
    assert one.state_key() == other.state_key()
    one.act("turn left", 3)
    other.act("turn right", 1)
    assert one.state_key() == other.state_key()
    one.act("turn right", 1)
    assert one.state_key() != other.state_key()


def test_the_oracle_refuses_a_mission_of_another_form() -> None:
    with pytest.raises(ValueError, match="'open the red door'"):
        Goal.of("open the red door")


def test_an_empty_list_of_levels_is_refused() -> None:
    with pytest.raises(ValueError, match="levels: got none"):
        babyai(0, 1, 1, 1, levels=[])
