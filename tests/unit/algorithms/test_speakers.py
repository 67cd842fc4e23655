"""Advantages of several speakers: statistics count episodes, not replies."""

from dataclasses import replace

import pytest

from agentfly_core.algorithms.dr_grpo import DrGRPO
from agentfly_core.algorithms.gdpo import GDPO
from agentfly_core.algorithms.gigpo import GiGPO
from agentfly_core.algorithms.grpo import GRPO
from agentfly_core.algorithms.max_rl import MaxRL
from agentfly_core.algorithms.opo import OPO
from agentfly_core.algorithms.reinforce_pp_baseline import ReinforcePPBaseline
from agentfly_core.algorithms.remax import ReMax
from agentfly_core.algorithms.rft import RFT
from agentfly_core.algorithms.rloo import RLOO
from agentfly_core.rl.aggregation import SeqMeanTokenMean, TokenMean
from agentfly_core.rl.batch import pack
from agentfly_core.testing import advantages_of, trajectory, turn
from tests.support.generated_trajectories import earned
from tests.support.random_updates import by_trajectory

REPLY = turn([1], {3: -1.0})


def spoken(agent, episode, *turns):
    role = agent.partition("/")[0]
    name = f"{episode}-{agent}"
    return trajectory(*turns or (REPLY,), name=name, agent=agent, episode=episode, group=role)


def team():
    """Four episodes of a planner and a searcher; the searcher is there twice in the third."""
    pairs = [(spoken("planner", e), spoken("searcher", e)) for e in ("a", "b", "c", "d")]
    everyone = [one for pair in pairs for one in pair]
    return [*everyone[:6], spoken("searcher/2", "c"), *everyone[6:]]


#          a         b         c, with two searchers  d
REWARDS = [1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0]
PLANNERS, SEARCHERS = [0, 2, 4, 7], [1, 3, 5, 6, 8]


@pytest.mark.parametrize(
    ("algorithm", "planners", "searchers"),
    [
        # planners earned 1, 0, 0, 0: mean 1/4, deviation 1/2
        # searchers earned 0, 0, 1, 1 by episode: mean 1/2, deviation sqrt(1/3)
        (GRPO(), [1.5, -0.5, -0.5, -0.5], [-0.866, -0.866, 0.866, 0.866, 0.866]),
        (DrGRPO(), [0.75, -0.25, -0.25, -0.25], [-0.5, -0.5, 0.5, 0.5, 0.5]),
        (RLOO(), [1.0, -1 / 3, -1 / 3, -1 / 3], [-2 / 3, -2 / 3, 2 / 3, 2 / 3, 2 / 3]),
        (MaxRL(), [3.0, -1.0, -1.0, -1.0], [-1.0, -1.0, 1.0, 1.0, 1.0]),
        (OPO(), [0.75, -0.25, -0.25, -0.25], [-0.5, -0.5, 0.5, 0.5, 0.5]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_instances_of_a_role_are_compared_as_one(algorithm, planners, searchers):
    advantages = advantages_of(algorithm, team(), REWARDS)
    assert [advantages[i] for i in PLANNERS] == [[pytest.approx(a, abs=1e-3)] for a in planners]
    assert [advantages[i] for i in SEARCHERS] == [[pytest.approx(a, abs=1e-3)] for a in searchers]


def test_gigpo_adds_to_the_comparison_of_episodes_that_of_turns():
    episodes = advantages_of(GiGPO(weight=0.0), team(), REWARDS)
    assert episodes == advantages_of(DrGRPO(), team(), REWARDS)
    # all five searchers' turns are in one state, which planners' turns are not: mean 3/5
    both = advantages_of(GiGPO(), team(), REWARDS)
    assert [both[i] for i in SEARCHERS] == [
        [pytest.approx(a)] for a in (-0.5 - 0.6, -0.5 - 0.6, 0.5 + 0.4, 0.5 + 0.4, 0.5 + 0.4)
    ]
    assert [both[i] for i in PLANNERS] == [[1.5], [-0.5], [-0.5], [-0.5]]


def met(*states):
    """Replies to these states; the second one has a separate context."""
    return [replace(REPLY, state=one, context=number % 2) for number, one in enumerate(states)]


def test_gigpo_compares_replies_to_a_state_across_contexts():
    played = [
        spoken("searcher", "a", *met("hall", "hall", "shelf")),
        spoken("planner", "a", *met("hall")),
        spoken("searcher", "b", *met("hall")),
        spoken("planner", "b", *met("hall")),
    ]
    assert len(pack(played).tokens) == 5
    advantages = advantages_of(GiGPO(gamma=1.0), played, [1.0, 4.0, 0.0, 1.0])
    # searchers in the hall: returns 1, 1, 0, mean 2/3; only one is at the shelf
    # planners in the hall: returns 4, 1, mean 5/2
    assert advantages == [
        [pytest.approx(0.5 + 1 / 3), pytest.approx(0.5 + 1 / 3), 0.5],
        [1.5 + 1.5],
        [pytest.approx(-0.5 - 2 / 3)],
        [-1.5 - 1.5],
    ]


@pytest.mark.parametrize("algorithm", [GDPO(), ReinforcePPBaseline()], ids=["gdpo", "reinforce"])
def test_whitening_follows_the_comparison_by_episode(algorithm):
    batch = pack(team())
    named = {"parts": [{"exact": reward} for reward in REWARDS], "weights": {"exact": 1.0}}
    estimate = algorithm.estimate_advantages(earned(team(), REWARDS, batch, **named), batch)
    of_each = [line[0] for line in by_trajectory(estimate.advantages, batch, len(REWARDS))]
    # whitening keeps the order and the ratios of differences: winner, loser of both roles
    winner, loser, bad, good = of_each[0], of_each[2], of_each[1], of_each[5]
    by_hand = {GDPO: (2.0, 1.7320), ReinforcePPBaseline: (1.0, 1.0)}[type(algorithm)]
    assert (winner - loser) / (good - bad) == pytest.approx(by_hand[0] / by_hand[1], abs=1e-3)
    assert sum(of_each) == pytest.approx(0.0, abs=1e-5)


def test_a_penalty_of_one_instance_is_its_own():
    """Two searchers of an episode earned 1 and 0.5, 0.75 on average; the other episode's 0.25."""
    played = [spoken("searcher", "a"), spoken("searcher/2", "a"), spoken("searcher", "b")]
    advantages = advantages_of(DrGRPO(), played, [1.0, 0.5, 0.25])
    assert advantages == [[0.5], [0.0], [-0.25]]


def test_instances_of_a_single_episode_are_not_compared():
    played = [spoken("searcher", "a"), spoken("searcher/2", "a")]
    assert advantages_of(GRPO(), played, [1.0, 0.0]) == [[0.0], [0.0]]


def test_remax_has_a_baseline_for_each_problem_and_role():
    played = [spoken("planner", "a"), spoken("searcher", "a"), spoken("searcher/2", "a")]
    batch = pack(played)
    outcomes = earned(played, [1.0] * 3, batch, greedy={"planner": 0.25, "searcher": 1.0})
    assert by_trajectory(ReMax().advantages(outcomes, batch).advantages, batch, 3) == [
        [0.75],
        [0.0],
        [0.0],
    ]


def test_rft_keeps_the_best_episodes_with_all_instances():
    advantages = advantages_of(RFT(best=1), team(), REWARDS)
    assert [i for i, (advantage,) in enumerate(advantages) if advantage] == [0, 5, 6]


def folded(episode, contexts):
    """A trajectory with `contexts` contexts, and rows, with one sampled token in each."""
    return spoken("main", episode, *(replace(REPLY, context=k) for k in range(contexts)))


def test_an_episode_of_ten_rows_counts_once():
    """Rewards 1, 0, 0, 0 with 10, 1, 1, 1 rows: were rows counted, the winner would have 0.53."""
    played = [folded("a", 10), folded("b", 1), folded("c", 1), folded("d", 1)]
    assert len(pack(played).tokens) == 13
    advantages = advantages_of(GRPO(), played, [1.0, 0.0, 0.0, 0.0])
    assert advantages == [
        [pytest.approx(1.5, abs=1e-5)] * 10,
        *[[pytest.approx(-0.5, abs=1e-5)]] * 3,
    ]


def test_rows_of_a_trajectory_weigh_as_one_or_by_token():
    batch = pack([folded("a", 10), folded("b", 1)])
    by_trajectory_mean = SeqMeanTokenMean().weights(batch)[batch.sampled]
    assert by_trajectory_mean.tolist() == pytest.approx([0.05] * 10 + [0.5])
    assert TokenMean().weights(batch)[batch.sampled].tolist() == pytest.approx([1 / 11] * 11)
