"""Stored episodes are scored and compared."""

from pathlib import Path

from agentfly_core.pipeline.scoring import score_episodes, shard_scores
from agentfly_core.records.parquet import EPISODES, SCORES, read_scores, write_trajectories
from agentfly_core.records.timing import write_timings
from agentfly_core.testing.trajectories import trajectory, turn
from tests.support.experiments import experiment


def test_early_and_late_scoring_give_equal_scores(
    tmp_path: Path,
) -> None:
    """One shard lacks the writer that the reward pays: the step's stage scores its episode."""
    reply = turn([1], {2: -0.5}, reply="seven")
    alone = trajectory(reply, name="t0", answered="seven")
    led = trajectory(reply, name="t1", episode="e1", answered="seven")
    wrote = trajectory(reply, name="t2", episode="e1", agent="writer")
    shards = tmp_path / "0", tmp_path / "1"
    for shard, episodes in zip(shards, ([alone], [led, wrote]), strict=True):
        shard.mkdir()
        write_trajectories(shard / EPISODES, episodes)
        write_timings(shard, [])
    scored = experiment(tmp_path, rewards={"tests.support.eager_speakers:writers_share": 1.0})
    rewards, scores = scored.whole.rewards, scored.scores
    beside = [one for shard in shards for one in shard_scores(rewards, scores, shard)]
    early = [(one.trajectory_id, one.reward) for one in beside]
    assert early == [("t1", 5.0), ("t2", 0.5)]
    for name, before in {"beside": beside, "after": []}.items():
        (tmp_path / name).mkdir()
        score_episodes(scored, shards, before, 1, tmp_path / name)
    assert (tmp_path / "beside" / SCORES).read_bytes() == (tmp_path / "after" / SCORES).read_bytes()
    assert [one.reward for one in read_scores(tmp_path / "beside" / SCORES)] == [5.0, 5.0, 0.5]


def test_a_group_in_two_shards_is_compared_as_one(tmp_path: Path) -> None:
    played = [
        trajectory(turn([1], {2: 0.0}, reply=reply), name=f"t{chain}", chain=chain)
        for chain, reply in enumerate(("9", "999", "99"))
    ]
    written = {"whole": played, "first": played[:2], "second": played[2:]}
    for name, episodes in written.items():
        (tmp_path / name).mkdir()
        write_trajectories(tmp_path / name / EPISODES, episodes)
        write_timings(tmp_path / name, [])
    comparing = experiment(tmp_path, rewards={"tests.support.process_parts:rank": 1.0})
    rewards, first = comparing.whole.rewards, tmp_path / "first"
    assert shard_scores(rewards, comparing.scores, first) == []
    scores = []
    for shards in (["whole"], ["first", "second"]):
        scored = tmp_path / f"scored by {len(shards)}"
        scored.mkdir()
        score_episodes(comparing, [tmp_path / name for name in shards], [], 1, scored)
        assert [one.reward for one in read_scores(scored / SCORES)] == [0.0, 2.0, 1.0]
        scores.append((scored / SCORES).read_bytes())
    assert scores[0] == scores[1]
