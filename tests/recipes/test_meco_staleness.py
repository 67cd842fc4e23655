"""A training step makes a probe stale, and a new fit to the trained policy is accepted."""

from functools import partial
from pathlib import Path

import pytest

from agentfly_core import Ending, Experiment, Trajectory, load_experiment, play, reward, train
from agentfly_core.recipes.meco.fitting import AGENTS, fit_gate
from tests.support.project import ROOT

SMALL = (
    "data.train=16",
    "data.validation=48",
    "data.test=4",
    f"rewards={{'{__name__}:even': 1.0}}",
    "warm_start=null",
    "rollout={problems: 2, group_size: 4, shard: 8}",
    "steps=1",
)


@reward
async def even(trajectory: Trajectory) -> float:
    """1 for a first reply of an even length, about half of an untrained model's replies."""
    return float(len(trajectory.turns[0].reply.content) % 2 == 0)


def probe_of(experiment: Experiment, policy: str, folder: Path) -> str:
    rows = fit_gate(experiment, policy, folder=str(folder))
    return next(str(row["file"]) for row in rows if row["file"])


@pytest.mark.long
def test_a_step_makes_a_probe_stale_until_it_is_fitted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("AGENTFLY_SAMPLER", "transformers")
    experiment = load_experiment("meco", *SMALL, store=str(tmp_path / "store"))
    train(experiment, "trained")
    gated = partial(experiment.with_agent, use=f"{AGENTS}:Gated")
    for fitted, other in (("base", "run:trained"), ("run:trained", "base")):
        probe = probe_of(experiment, fitted, tmp_path)
        accepted = play(gated(probe=probe), fitted, 4, "test").episodes
        refused = play(gated(probe=probe), other, 4, "test").episodes
        assert Ending.FAILED not in {one.ending for one in accepted}
        assert {one.ending for one in refused} == {Ending.FAILED}
        assert all("Fit a new probe" in (one.error or "") for one in refused)
