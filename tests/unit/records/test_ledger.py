"""Every problem consumed is written down."""

from dataclasses import replace

import pytest

from agentfly_core.records import ledger
from agentfly_core.records.ledger import LedgerRow
from agentfly_core.records.trajectory import Problem, Scored, Unscored
from tests.support.recorded_episode import trajectory

REWARDS = {"p": [1.0, 0.0], "q": [1.0, 1.0], "r": [Unscored("exact: TimeoutError")] * 2}
ROWS = [
    LedgerRow(7, "single", "p", 2, 2, 0.5, "used"),
    LedgerRow(7, "single", "q", 2, 2, 1.0, "zero_spread"),
    LedgerRow(7, "single", "r", 2, 0, None, "unscored"),
]


def test_the_ledger_has_the_outcome_of_each_problem():
    played, scores = [], []
    for name, values in REWARDS.items():
        for chain, value in enumerate(values):
            played.append(
                replace(trajectory(), id=f"{name}{chain}", problem=Problem(name, "?"), chain=chain)
            )
            scores.append(Scored(f"{name}{chain}", {}, (), value))
    assert ledger.ledger(7, played, scores) == ROWS


def team(problem, *pairs):
    """Scored episodes of a planner and of a searcher with two instances."""
    played, scores = [], []
    for chain, (planner, searcher) in enumerate(pairs):
        of_agents = {"planner": planner, "searcher": searcher, "searcher/2": searcher}
        for agent, value in of_agents.items():
            name = f"{problem}{chain}-{agent}"
            member = replace(trajectory(), id=name, agent=agent, problem=Problem(problem, "?"))
            played.append(replace(member, episode=f"{problem}{chain}", chain=chain))
            scores.append(Scored(name, {}, (), value))
    return played, scores


def test_a_problem_counts_episodes_however_many_speak_in_them():
    played, scores = team("p", (1.0, 0.0), (0.0, 0.0))
    assert ledger.ledger(7, played, scores) == [LedgerRow(7, "single", "p", 2, 2, 0.25, "used")]


def test_a_problem_with_spread_for_one_speaker_is_used():
    played, scores = team("p", (1.0, 0.0), (1.0, 0.5))
    others, their_scores = team("q", (1.0, 0.0), (1.0, 0.0))
    played, scores = [*played, *others], [*scores, *their_scores]
    assert [row.outcome for row in ledger.ledger(7, played, scores)] == ["used", "zero_spread"]


def test_problems_whose_episodes_differed_are_counted(tmp_path):
    ledger.write(tmp_path, ROWS)
    assert ledger.used(tmp_path) == {"single": 1}


def test_the_steps_are_joined(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        ledger.write(tmp_path / name, ROWS)
    assert len(ledger.joined([tmp_path / "one", tmp_path / "two"])) == 6


def test_pass_rates_add_up_over_steps_by_kind(tmp_path):
    rows = {
        "one": [LedgerRow(1, "single", "p", 4, 4, 0.5, "used", "hard", 2)],
        "two": [
            LedgerRow(2, "single", "q", 4, 3, 0.2, "used", "hard", 1),
            LedgerRow(2, "single", "r", 4, 4, 1.0, "zero_spread", "easy", 4),
        ],
    }
    for name, some in rows.items():
        (tmp_path / name).mkdir()
        ledger.write(tmp_path / name, some)
    folders = [tmp_path / "one", tmp_path / "two"]
    assert ledger.together(map(ledger.pass_rates, folders)) == {"easy": (4, 4), "hard": (3, 7)}
    assert ledger.together([]) == {}


def test_a_step_without_a_curriculum_has_no_pass_rates(tmp_path):
    ledger.write(tmp_path, ROWS)
    with pytest.raises(ValueError, match=r"rollout\.curriculum: "):
        ledger.pass_rates(tmp_path)
