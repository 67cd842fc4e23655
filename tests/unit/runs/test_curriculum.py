"""The curriculum of a step reads the steps up to the step of its policy."""

import pytest

from agentfly_core.experiment.keys import StageKeys
from agentfly_core.pipeline.scoring import score_episodes
from agentfly_core.records import ledger
from agentfly_core.records.ledger import LedgerRow
from agentfly_core.records.parquet import EPISODES, write_trajectories
from agentfly_core.records.timing import write_timings
from agentfly_core.records.trajectory import Problem
from agentfly_core.runs.run import opened
from agentfly_core.store.artifact import ArtifactKey, Pointer
from agentfly_core.testing.trajectories import trajectory, turn
from tests.support.experiments import experiment
from tests.support.problems import schedule_of

ROLLOUT = {"problems": 1, "group_size": 2, "curriculum": {"window": 2, "by": "kind"}}
STALE = {"algorithm": {"use": "grpo", "correction": {"use": "token_tis"}}}


def scored(run, step, solved):
    """Publish a scored step that solved `solved` of four episodes of a hard problem."""
    uri = run.layout.step(step).scored
    with run.store.publish(ArtifactKey(uri, "score", uri, {})) as folder:
        ledger.write(
            folder, [LedgerRow(step, "single", f"p{step}", 4, 4, 0.5, "used", "hard", solved)]
        )


@pytest.mark.parametrize("staleness", [0, 1])
def test_pass_rates_come_from_steps_up_to_the_policys_step(tmp_path, staleness):
    rollout = {**ROLLOUT, "max_staleness": staleness}
    with opened(experiment(tmp_path, rollout=rollout, steps=4, **STALE), "demo") as run:
        assert run.pass_rates(1) == {}
        for step, solved in enumerate((1, 2, 3), 1):
            scored(run, step, solved)
        rates = {4: (6, 12), 3: (3, 8), 2: (1, 4), 1: None}
        for step in (1, 2, 3):
            assert run.pass_rates(step + staleness).get("hard") == rates[step]
        run.store.remove(run.layout.step(1).scored)  # the rates are cached
        assert run.pass_rates(3 + staleness)["hard"] == rates[3]


def test_pass_rates_are_part_of_the_rollout_key(tmp_path):
    settings = experiment(tmp_path, rollout=ROLLOUT).settings
    policy = Pointer("artifacts/p", "p" * 8)

    def key(rates):
        drawn = schedule_of(settings).first_round(3, False, {}, rates).drawn(schedule_of(settings))
        return StageKeys(settings).rollout("demo", policy, policy, 3, 0, drawn, {}).key

    assert key({"hard": (1, 4)}) == key({"hard": (1, 4)}) != key({"hard": (2, 4)})


def test_a_scored_step_counts_solved_episodes_by_kind(tmp_path):
    problem = Problem("p", "?", {"answer": "7", "kind": "hard"})
    played = [
        trajectory(
            turn([1], {3: -1.0}, reply=reply), name=f"t{reply}", problem=problem, chain=chain
        )
        for chain, reply in enumerate("78")
    ]
    write_trajectories(tmp_path / EPISODES, played)
    write_timings(tmp_path, [])
    score_episodes(experiment(tmp_path, rollout=ROLLOUT), [tmp_path], [], 1, tmp_path)
    assert ledger.pass_rates(tmp_path) == {"hard": (1, 2)}
