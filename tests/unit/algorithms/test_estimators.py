"""From rewards to advantages: each algorithm by numbers that a hand can check, and by its
definition.
"""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentfly_core.algorithms.dapo import DAPO, Overlong
from agentfly_core.algorithms.dr_grpo import DrGRPO
from agentfly_core.algorithms.gdpo import GDPO
from agentfly_core.algorithms.gigpo import GiGPO
from agentfly_core.algorithms.grpo import GRPO
from agentfly_core.algorithms.max_rl import MaxRL
from agentfly_core.algorithms.opo import OPO
from agentfly_core.algorithms.reinforce_pp import ReinforcePP
from agentfly_core.algorithms.reinforce_pp_baseline import ReinforcePPBaseline
from agentfly_core.algorithms.remax import ReMax
from agentfly_core.algorithms.rft import RFT
from agentfly_core.algorithms.rloo import RLOO
from agentfly_core.rl.batch import pack
from agentfly_core.rl.kl import AdaptiveKL, RewardKL
from agentfly_core.testing.trajectories import trajectory as played
from agentfly_core.testing.trajectories import turn
from tests.support import reference
from tests.support.generated_trajectories import earned
from tests.support.random_updates import WEIGHTS, by_trajectory, ragged

SHORT = played(turn([1], {3: -1.0}))
LONG = played(turn([1], {3: -1.0, 4: -1.0, 5: -1.0}))


def credited(algorithm, trajectories, rewards, **more):
    """The advantages of each trajectory's tokens."""
    batch = pack(trajectories)
    advantages = algorithm.estimate_advantages(
        earned(trajectories, rewards, batch, **more), batch
    ).advantages
    return by_trajectory(advantages, batch, len(trajectories))


def approx(lines):
    return [pytest.approx(line, abs=1e-5) for line in lines]


@pytest.mark.parametrize(
    ("algorithm", "advantages"),
    [
        (GRPO(), [1.5, -0.5, -0.5, -0.5]),
        (DrGRPO(), [0.75, -0.25, -0.25, -0.25]),
        (RLOO(), [1.0, -1 / 3, -1 / 3, -1 / 3]),
        (OPO(), [0.75, -0.25, -0.25, -0.25]),
        (MaxRL(), [3.0, -1.0, -1.0, -1.0]),
        (ReinforcePPBaseline(), [1.5, -0.5, -0.5, -0.5]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_one_success_among_four_is_worth(algorithm, advantages):
    actual = credited(algorithm, [SHORT] * 4, [1.0, 0.0, 0.0, 0.0])
    assert actual == [[pytest.approx(a, abs=2e-5)] for a in advantages]


def test_the_mean_of_opo_is_over_tokens():
    assert credited(OPO(), [LONG, SHORT], [1.0, 0.0]) == approx([[0.25] * 3, [-0.75]])


def test_remax_compares_with_the_greedy_episode_of_the_problem():
    other = played(turn([1], {3: -1.0}), group="no greedy one")
    advantages = credited(ReMax(), [SHORT, SHORT, other], [1.0, 0.0, 1.0], greedy={"g0": 0.25})
    assert advantages == [[0.75], [-0.25], [0.0]]
    with pytest.raises(ValueError, match=r"greedy episode .*score"):
        credited(ReMax(), [SHORT], [1.0])


def test_only_sampled_tokens_discount_returns():
    talk = played(turn([1], {3: -1.0}), turn([5, 6, 7], {3: -1.0, 4: -1.0}))
    advantages = credited(ReinforcePP(gamma=0.5), [talk], [1.0])[0]
    assert [
        (a - advantages[2]) / (advantages[1] - advantages[2]) for a in advantages
    ] == pytest.approx([1.5, 1.0, 0.0])  # .25, .5, 1


def test_every_reward_has_its_own_scale():
    parts = [{"exact": 1.0, "brief": 0.0}, {"exact": 0.0, "brief": 0.01}]
    brief_counts_double = {"exact": 1.0, "brief": 2.0}
    advantages = credited(
        GDPO(), [SHORT, SHORT], [1.0, 0.02], parts=parts, weights=brief_counts_double
    )
    assert advantages == approx([[-math.sqrt(0.5)], [math.sqrt(0.5)]])


def at(state):
    return replace(turn([1], {3: -1.0}), state=state)


def test_replies_to_the_same_state_are_compared_with_each_other():
    won, lost = played(at("door"), at("hall")), played(at("door"), at("cellar"))
    advantages = credited(GiGPO(gamma=0.5), [won, lost], [1.0, 0.0])
    # episode +-0.5; returns at the door 0.5 and 0: +-0.25; hall and cellar have one visit each
    assert advantages == [[0.75, 0.5], [-0.75, -0.5]]


def test_missing_greedy_baselines_are_a_metric():
    group = [SHORT, SHORT, SHORT, replace(SHORT, group="unscored")]
    outcomes = earned(group, [1.0, 0.0, 1.0, 1.0], greedy={"g0": 0.25})
    assert ReMax().measures(outcomes, pack(group)) == {"train/without_baseline": 1 / 4}


def test_the_share_of_compared_turns_is_a_metric():
    won, lost, other = (
        played(at("door"), at("hall")),
        played(at("door"), at("cellar")),
        played(at("door"), group="b"),
    )
    outcomes = earned([won, lost, other], [1.0, 0.0, 1.0])
    assert GiGPO().measures(outcomes, pack([won, lost, other])) == {"train/compared_turns": 2 / 5}


def test_the_same_state_of_another_problem_is_another_state():
    one, two = played(at("door"), group="a"), played(at("door"), group="b")
    assert credited(GiGPO(), [one, two], [1.0, 0.0]) == [[0.0], [0.0]]


def test_a_state_met_twice_in_an_episode_counts_twice():
    circle, straight = played(at("door"), at("door")), played(at("door"))
    advantages = credited(GiGPO(gamma=0.5, weight=1.0), [circle, straight], [1.0, 0.0])
    assert advantages == approx(
        [[0.5 + 0.0, 0.5 + 0.5], [-0.5 - 0.5]]
    )  # returns 0.5, 1 and 0 at the door, mean 0.5


def test_overlong_replies_pay_a_limited_penalty():
    lengths = (80, 90, 100, 120)
    episodes = [played(turn([0], dict.fromkeys(range(1, n + 1), -1.0))) for n in lengths]
    algorithm = DAPO(overlong=Overlong(longest=100, buffer=20, factor=1.0))
    advantages = [
        line[0] for line in credited(algorithm, episodes, [1.0, 1.0, 1.0, 1.0])
    ]  # worth 1, 0.5, 0, 0
    assert advantages == pytest.approx(
        [(r - 0.375) / math.sqrt(0.6875 / 3) for r in (1, 0.5, 0, 0)], abs=1e-5
    )


def test_a_limited_number_of_successes_is_imitated():
    group = [played(turn([1], {3: -1.0}), group=name) for name in "aaaab"]
    advantages = credited(RFT(threshold=0.5, best=2), group, [0.6, 0.0, 0.9, 0.7, 0.4])
    assert advantages == [[0], [0], [1], [1], [0]]


@pytest.mark.parametrize("penalty", [RewardKL(), AdaptiveKL()], ids=lambda penalty: penalty.use)
@pytest.mark.parametrize("algorithm", [MaxRL, GDPO], ids=lambda algorithm: algorithm.__name__)
def test_an_unsupported_kl_penalty_is_refused(algorithm, penalty):
    with pytest.raises(
        ValueError, match=rf"algorithm.kl.use: got '{penalty.use}', expected 'loss'"
    ):
        algorithm(kl=penalty)


def test_a_reward_below_zero_is_refused_where_its_mean_divides():
    with pytest.raises(ValueError, match=r"MaxRL .*-0\.5"):
        credited(MaxRL(), [SHORT, SHORT], [1.0, -0.5])


def test_rewards_far_from_zero_keep_their_differences():
    for algorithm in (ReinforcePP(), ReinforcePPBaseline()):
        advantages = credited(algorithm, [SHORT, SHORT], [1e9, 1e9 + 1])
        assert advantages == approx([[-math.sqrt(0.5)], [math.sqrt(0.5)]])


DEFINITIONS = [
    (GRPO(), reference.grpo),
    (DAPO(), reference.grpo),
    (
        DAPO(overlong=Overlong(longest=8, buffer=4)),
        lambda stories: reference.dapo(stories, 8, 4, 1.0),
    ),
    (
        DAPO(overlong=Overlong(longest=12, buffer=8, factor=0.5)),
        lambda stories: reference.dapo(stories, 12, 8, 0.5),
    ),
    (DrGRPO(), reference.dr_grpo),
    (RLOO(), reference.rloo),
    (OPO(), reference.opo),
    (MaxRL(), reference.max_rl),
    (ReMax(), reference.remax),
    (RFT(), lambda stories: reference.rft(stories, 1.0, 4)),
    (RFT(threshold=0.3, best=1), lambda stories: reference.rft(stories, 0.3, 1)),
    (RFT(threshold=0.15, best=2), lambda stories: reference.rft(stories, 0.15, 2)),
    (ReinforcePP(), reference.reinforce_pp),
    (ReinforcePP(gamma=0.9), lambda stories: reference.reinforce_pp(stories, 0.9)),
    (ReinforcePPBaseline(), reference.reinforce_pp_baseline),
    (GDPO(), lambda stories: reference.gdpo(stories, WEIGHTS)),
    (GiGPO(), reference.gigpo),
    (GiGPO(gamma=0.7, weight=0.3), lambda stories: reference.gigpo(stories, 0.7, 0.3)),
]


@pytest.mark.parametrize(
    ("algorithm", "definition"), DEFINITIONS, ids=lambda value: type(value).__name__
)
@settings(max_examples=8)
@given(seed=st.integers(0, 10_000))
def test_advantages_are_those_of_the_definition(algorithm, definition, seed):
    case = ragged(seed)
    advantages = algorithm.estimate_advantages(case.outcomes, case.batch).advantages
    expected = definition(case.stories)
    for mine, theirs in zip(
        by_trajectory(advantages, case.batch, len(case.stories)), expected, strict=True
    ):
        assert mine == pytest.approx(theirs, abs=1e-6, rel=1e-6)
    assert advantages[~case.batch.sampled].eq(0).all()
