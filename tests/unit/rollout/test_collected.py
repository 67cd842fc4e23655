"""Results of a shard: order and times of episodes, and reports at their end."""

import itertools

import pytest

from agentfly_core.records.trajectory import (
    Problem,
    Trajectory,
)
from agentfly_core.testing.episodes import (
    ADD,
    episode_specs,
    play_all,
    rollout_spec,
    saying,
    scripted,
)
from agentfly_core.tools.calculator import calculator
from tests.support.policies import chained


async def test_the_same_assignments_give_the_same_record_in_the_same_order() -> None:
    sampler = scripted(chained(lambda chain: (f"<calculator expression={chain}+1>", f"{chain}")))
    problems = episode_specs(Problem("b", "?"), ADD, chains=3)
    first, *_ = await play_all(problems, rollout_spec(calculator), sampler)
    again, *_ = await play_all(problems[::-1], rollout_spec(calculator), sampler)
    assert first == again
    assert [(t.problem.id, t.chain) for t in first] == [
        (p, c) for p in ("add-41-58", "b") for c in range(3)
    ]
    assert len({t.id for t in first}) == 6
    assert len({t.group for t in first}) == 2
    assert len({t.seed for t in first}) == 6


async def test_every_trajectory_is_told_to_the_watcher_as_it_ends() -> None:
    seen: list[Trajectory] = []
    trajectories, *_ = await play_all(
        episode_specs(ADD, chains=3), rollout_spec(), scripted(saying("ok")), seen.append
    )
    assert sorted(seen, key=lambda t: t.chain) == trajectories


async def test_no_episode_is_no_work() -> None:
    assert await play_all([], rollout_spec(), scripted(saying("ok"))) == ([], [], {})


async def test_times_say_what_an_episode_waited_for() -> None:
    sampler = scripted(saying("<calculator expression=1>", "1"))
    _, (timing,), _ = await play_all(episode_specs(ADD), rollout_spec(calculator), sampler)
    assert [span.doing for span in timing.spans] == [
        "waiting",
        "generating",
        "tools",
        "generating",
        "rewards",
    ]
    starts = [span.start for span in timing.spans]
    assert starts == sorted(starts)
    doings = {span.doing for span in timing.spans}
    assert all(timing.seconds(doing) >= 0 for doing in doings)
    spent = sum(timing.seconds(doing) for doing in doings)
    assert spent == pytest.approx(sum(span.end - span.start for span in timing.spans))


async def test_no_time_is_negative_when_the_clock_is_set_back_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hours = itertools.count()
    monkeypatch.setattr("time.time", lambda: 1763740000.0 - 3600 * next(hours))
    _, (timing,), _ = await play_all(episode_specs(ADD), rollout_spec(), scripted(saying("ok")))
    assert all(span.start <= span.end for span in timing.spans)
