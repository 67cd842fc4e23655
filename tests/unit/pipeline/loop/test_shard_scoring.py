"""The shards of a step are scored once, while later shards are played."""

from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agentfly_core.pipeline.loop.lookahead import one_thread
from agentfly_core.pipeline.loop.training import episodes
from agentfly_core.pipeline.scoring import shard_scores
from agentfly_core.pipeline.stages.rollout import RoundEpisodes
from agentfly_core.records.parquet import EPISODES, write_trajectories
from agentfly_core.records.timing import write_timings
from agentfly_core.records.trajectory import Scored
from agentfly_core.runs.run import opened
from agentfly_core.store.artifact import Artifact, ArtifactKey, Pointer
from agentfly_core.store.store import Store
from agentfly_core.testing.trajectories import trajectory, turn
from tests.support.experiments import experiment
from tests.support.problems import schedule_of
from tests.support.stages import stages_with

POLICY, DATA = Pointer("p", "9f2c"), Pointer("d", "77b0")
SETTINGS = {
    "rewards": {"tests.support.evenness:evenness": 1.0},
    "rollout": {"problems": 2, "group_size": 2, "shard": 2},
}


def played(store: Store, uri: str, name: str) -> Artifact:
    """A shard of one episode with this name."""
    with store.publish(ArtifactKey(uri, "rollout", name, {})) as folder:
        write_trajectories(folder / EPISODES, [trajectory(turn([1], {2: -0.5}), name=name)])
        write_timings(folder, [])
    return store.artifact(uri)


def test_scores_of_all_shards_are_in_their_order(tmp_path: Path) -> None:
    here = experiment(tmp_path, **SETTINGS)
    grade = partial(shard_scores, here.whole.rewards, here.scores)
    names = ("t0", "t1", "t2")
    shards = [played(here.store, f"runs/demo/{name}", name) for name in names]
    with one_thread("score") as thread:
        begun = [thread.submit(grade, here.store.open(shard)) for shard in shards]
        scores = [one.trajectory_id for future in begun for one in future.result()]
    assert scores == [*names]


def test_after_an_interruption_no_further_shard_is_scored(tmp_path: Path) -> None:
    here = experiment(tmp_path, **SETTINGS)
    grade = partial(shard_scores, here.whole.rewards, here.scores)
    shards = [played(here.store, f"runs/demo/t{n}", f"t{n}") for n in range(20)]
    begun = list[Future[list[Scored]]]()
    with pytest.raises(KeyboardInterrupt), one_thread("score") as thread:
        begun += [thread.submit(grade, here.store.open(shard)) for shard in shards]
        raise KeyboardInterrupt
    assert all(future.done() for future in begun)
    assert begun[-1].cancelled()


def test_an_existing_shard_is_left_to_the_score_stage(
    tmp_path: Path,
) -> None:
    scored = list[str]()

    def rollout(*given: Any) -> Artifact:
        *_, drawn, shard = given
        uri = drawn.run.layout.step(1).rollout(shard)
        return played(drawn.run.store, uri, f"t{shard}")

    def score(*given: Any) -> Any:
        scored.extend(one.trajectory_id for one in given[-1])
        return DATA

    stages = stages_with(rollout=rollout, score=score)
    with opened(experiment(tmp_path, **SETTINGS), "demo") as run:
        rollout(RoundEpisodes(run, DATA, schedule_of(run.settings).first_round(1, False)), 0)
        services: Any = None
        shards, _ = episodes(stages, run, services, DATA, POLICY, 0, 1)
    assert [shard.uri[-3:] for shard in shards] == ["000", "001"]
    assert scored == ["t1"]
