"""Stored episodes are scored, and learned from."""

from pathlib import Path

from agentfly_core.pipeline.scoring import score_episodes, scored_shard
from agentfly_core.records.parquet import EPISODES, SCORES, read_scores, write_trajectories
from agentfly_core.records.timing import write_timings
from agentfly_core.testing.trajectories import trajectory, turn
from tests.support.experiments import experiment


def test_shards_scored_while_the_next_are_played_get_the_scores_of_scoring_afterwards(
    tmp_path: Path,
) -> None:
    """One shard lacks the writer whom the reward pays: its episode is left to the step's stage."""
    said = turn([1], {2: -0.5}, reply="seven")
    alone = trajectory(said, name="t0", answered="seven")
    led = trajectory(said, name="t1", episode="e1", answered="seven")
    wrote = trajectory(said, name="t2", episode="e1", agent="writer")
    shards = tmp_path / "0", tmp_path / "1"
    for shard, episodes in zip(shards, ([alone], [led, wrote]), strict=True):
        shard.mkdir()
        write_trajectories(shard / EPISODES, episodes)
        write_timings(shard, [])
    scored = experiment(tmp_path, rewards={"tests.support.teams:writers_share": 1.0})
    beside = {shard: scored_shard(scored.whole.rewards, scored.scores, shard) for shard in shards}
    known = [(one.trajectory_id, one.reward) for shard in beside.values() for one in shard.scores]
    assert known == [("t1", 5.0), ("t2", 0.5)]
    for name, before in {"beside": beside, "after": {}}.items():
        (tmp_path / name).mkdir()
        score_episodes(scored, shards, [], 1, tmp_path / name, before)
    assert (tmp_path / "beside" / SCORES).read_bytes() == (tmp_path / "after" / SCORES).read_bytes()
    assert [one.reward for one in read_scores(tmp_path / "beside" / SCORES)] == [5.0, 5.0, 0.5]


def test_a_group_that_lies_in_two_shards_is_compared_whole(tmp_path: Path) -> None:
    played = [
        trajectory(turn([1], {2: 0.0}, reply=reply), name=f"t{chain}", chain=chain)
        for chain, reply in enumerate(("9", "999", "99"))
    ]
    written = {"whole": played, "first": played[:2], "second": played[2:]}
    for name, episodes in written.items():
        (tmp_path / name).mkdir()
        write_trajectories(tmp_path / name / EPISODES, episodes)
        write_timings(tmp_path / name, [])
    comparing = experiment(tmp_path, rewards={"tests.support.crunchers:rank": 1.0})
    rewards, first = comparing.whole.rewards, tmp_path / "first"
    assert scored_shard(rewards, comparing.scores, first).scores == []
    found = []
    for shards in (["whole"], ["first", "second"]):
        scored = tmp_path / f"scored by {len(shards)}"
        scored.mkdir()
        score_episodes(comparing, [tmp_path / name for name in shards], [], 1, scored)
        assert [one.reward for one in read_scores(scored / SCORES)] == [0.0, 2.0, 1.0]
        found.append((scored / SCORES).read_bytes())
    assert found[0] == found[1]
