import math
from dataclasses import replace

import pytest

from agentfly_core.records.timing import Span, Timing
from agentfly_core.records.trajectory import (
    BadCall,
    Ending,
    Given,
    Message,
    Observation,
    Problem,
    Sampled,
    Scored,
    ToolCall,
    Trajectory,
    Turn,
    Unscored,
)
from agentfly_core.runs.metrics import (
    outcomes_by_problem,
    point,
    rollout_metrics,
    solved,
    solved_by_problem,
)
from agentfly_core.testing import trajectories

TOOLS = ("calculator", "answer")


def timing(name: str, start: float, generating: float, tools: float) -> Timing:
    middle = start + generating
    return Timing(name, (Span("generating", start, middle), Span("tools", middle, middle + tools)))


def turn(
    given: int, sampled: int, *calls: ToolCall | BadCall, read: tuple[Observation, ...] = ()
) -> Turn:
    span = Sampled((7,) * sampled, (-0.5,) * sampled, policy_version=0, finish="stop")
    return Turn(read, Given((1,) * given), Message("assistant", "", calls), (span,))


def trajectory(
    name: str, group: str, ending: Ending, *turns: Turn, closing: tuple[Observation, ...] = ()
) -> Trajectory:
    problem = Problem(group, "What is 41+58?", {"answer": "99"})
    return trajectories.trajectory(
        *turns, name=name, group=group, problem=problem, ending=ending, closing=closing
    )


CALL = ToolCall("calculator", {"expression": "41+58"}, lenient=True)
ANSWER = ToolCall("answer", {"text": "99"})
MISTAKE = Observation("calculator", "expected an expression", error=True)
SHARD = [
    trajectory(
        "a",
        "g",
        Ending.TERMINAL,
        turn(10, 4, CALL),
        turn(3, 2, ANSWER),
        closing=(Observation("answer", "99"),),
    ),
    trajectory("b", "g", Ending.NO_TOOL_CALLS, turn(10, 6)),
    trajectory(
        "c",
        "h",
        Ending.MAX_TURNS,
        turn(10, 4, BadCall("{", "unterminated")),
        turn(3, 4, read=(MISTAKE,)),
    ),
    trajectory("d", "h", Ending.FAILED, turn(10, 4, ToolCall("sudo", {}))),
]
SCORES = [
    Scored("a", {"exact": 1.0, "format": 1.0}, (), 1.5),
    Scored("b", {"exact": 0.0, "format": 1.0}, (), 0.5),
    Scored("c", {"exact": 0.0, "format": 0.0}, (), 0.0),
    Scored("d", {}, (), Unscored("failed: the shop died")),
]
TIMINGS = [
    timing("a", 100.0, generating=2.0, tools=1.0),
    timing("b", 100.0, generating=1.0, tools=0.0),
    timing("c", 101.0, generating=3.0, tools=0.0),
    timing("d", 101.0, generating=1.0, tools=0.0),
]


@pytest.fixture(scope="module")
def metrics() -> dict[str, float]:
    return rollout_metrics(SHARD, SCORES, TIMINGS, "exact", TOOLS)


def test_reward_and_success_leave_out_unscored_episodes(metrics: dict[str, float]) -> None:
    assert metrics["rollout/reward"] == pytest.approx((1.5 + 0.5 + 0.0) / 3)
    assert metrics["rollout/success"] == pytest.approx(1 / 3)
    assert metrics["rollout/unscored"] == 1 / 4


def test_each_reward_has_its_mean_and_range(metrics: dict[str, float]) -> None:
    assert metrics["reward_extra/format/mean"] == pytest.approx(2 / 3)
    assert (metrics["reward_extra/format/min"], metrics["reward_extra/format/max"]) == (0.0, 1.0)


def test_turns_and_tokens_are_means_over_episodes(metrics: dict[str, float]) -> None:
    assert metrics["rollout/avg_turns"] == 6 / 4
    assert metrics["rollout/avg_sampled_tokens"] == (6 + 6 + 8 + 4) / 4
    assert metrics["rollout/avg_given_tokens"] == (13 + 10 + 13 + 10) / 4
    assert metrics["rollout/cut_replies"] == 0.0


def test_reasoning_and_rewritten_replies_are_counted_in_the_record() -> None:
    thought = turn(10, 6)
    (rest,) = thought.sampled
    reasoning = replace(rest, tokens=(7,) * 4, logprobs=(-0.5,) * 4)
    reply = Message("assistant", "99", reasoning="41+58")
    thought = replace(thought, reply=reply, sampled=(reasoning, rest))
    rewritten = replace(turn(3, 2), reply=Message("assistant", "99", rewritten=True))
    by_service = replace(turn(3, 2), sampled=())
    episode = trajectory("a", "g", Ending.NO_TOOL_CALLS, thought, rewritten, by_service)
    metrics = rollout_metrics([episode], SCORES[:1], [], "exact", TOOLS)
    assert metrics["rollout/avg_reasoning_tokens"] == 4
    assert metrics["rollout/rewritten_replies"] == 1 / 2


def test_calls_are_counted_by_name_and_unknown_names_as_bad(
    metrics: dict[str, float],
) -> None:
    assert metrics["rollout/avg_tool_calls"] == 4 / 4
    assert metrics["rollout/tool_calls/calculator"] == 1 / 4
    assert metrics["rollout/tool_calls/answer"] == 1 / 4
    assert metrics["rollout/avg_bad_calls"] == 2 / 4
    assert metrics["rollout/avg_lenient_calls"] == 1 / 4
    assert not [name for name in metrics if "sudo" in name]


def test_tool_errors_are_counted_by_tool(metrics: dict[str, float]) -> None:
    assert metrics["rollout/avg_tool_errors"] == 1 / 4
    assert metrics["rollout/tool_errors/calculator"] == 1 / 4
    assert metrics["rollout/tool_errors/answer"] == 0.0


def test_endings_are_shares_that_sum_to_one(metrics: dict[str, float]) -> None:
    endings = {name: value for name, value in metrics.items() if "/ending/" in name}
    assert endings["rollout/ending/failed"] == 1 / 4
    assert sum(endings.values()) == 1.0


def test_one_scored_episode_or_equal_rewards_have_no_spread(
    metrics: dict[str, float],
) -> None:
    assert metrics["rollout/zero_spread_groups"] == 1 / 2  # g: 1.5 and 0.5; h: 0.0 and unscored


def test_tokens_a_second_are_over_the_whole_stage(metrics: dict[str, float]) -> None:
    assert metrics["rollout/tokens_per_second"] == 24 / (104.0 - 100.0)
    assert metrics["rollout/time/avg"] == (3 + 1 + 3 + 1) / 4
    assert (metrics["rollout/time/min"], metrics["rollout/time/max"]) == (1.0, 3.0)
    assert metrics["rollout/time/tools"] == 1 / 4


def test_no_episodes_give_no_metrics() -> None:
    assert rollout_metrics([], [], [], "exact", TOOLS) == {}


def test_without_scores_the_reward_is_missing_rather_than_zero() -> None:
    metrics_of_unscored = rollout_metrics(SHARD[3:], SCORES[3:], TIMINGS[3:], "exact", TOOLS)
    assert "rollout/reward" not in metrics_of_unscored
    assert metrics_of_unscored["rollout/unscored"] == 1.0


def test_a_problem_is_solved_in_the_share_of_its_scored_episodes() -> None:
    assert solved_by_problem(SHARD, SCORES, "exact") == {"g": 0.5, "h": 0.0}


def test_a_reward_of_ten_times_a_tenth_solves_the_problem() -> None:
    assert solved(Scored("t0", {"exact": sum([0.1] * 10)}, (), 1.0), "exact") is True
    assert solved(Scored("t0", {"exact": 0.99999}, (), 1.0), "exact") is False


def test_numbers_that_are_not_finite_are_left_out() -> None:
    written = point(7, {"loss": math.nan, "reward": 1, "kl": math.inf}, time_ms=1763740000000)
    assert written == {"step": 7, "time_ms": 1763740000000, "metrics": {"reward": 1.0}}


def team(
    episode: str, group: str, ending: Ending, planner: float, searcher: float
) -> list[tuple[Trajectory, Scored]]:
    """One episode of a planner that calls a tool, and of two searchers, with their rewards."""
    turns = {
        "planner": (turn(10, 4, CALL), turn(3, 2)),
        "searcher": (turn(5, 1),),
        "searcher/2": (turn(5, 3),),
    }
    episodes = []
    for agent, spoken in turns.items():
        one = trajectory(f"{episode}-{agent}", group, ending, *spoken)
        named = {"exact": planner, "exact/speaker/searcher": searcher}
        value = planner if agent == "planner" else searcher
        episodes.append(
            (replace(one, agent=agent, episode=episode), Scored(one.id, named, (), value))
        )
    return episodes


TEAMS = [
    *team("a", "g", Ending.NO_TOOL_CALLS, 1.0, 0.5),
    *team("b", "g", Ending.MAX_TURNS, 1.0, 0.0),
    *team("c", "h", Ending.NO_TOOL_CALLS, 0.0, 0.5),
    *team("d", "h", Ending.NO_TOOL_CALLS, 0.0, 0.5),
]


@pytest.fixture(scope="module")
def metrics_of_teams() -> dict[str, float]:
    played, scores = zip(*TEAMS, strict=True)
    return rollout_metrics(played, scores, [], "exact", TOOLS)


def test_an_episode_of_several_speakers_counts_once(metrics_of_teams: dict[str, float]) -> None:
    assert metrics_of_teams["rollout/ending/max_turns"] == 1 / 4
    assert metrics_of_teams["rollout/avg_turns"] == 4.0
    assert metrics_of_teams["rollout/avg_sampled_tokens"] == 4 + 2 + 1 + 3
    assert metrics_of_teams["rollout/tool_calls/calculator"] == 1.0
    assert metrics_of_teams["rollout/success"] == 2 / 4
    assert metrics_of_teams["reward_extra/exact/mean"] == 0.5


def test_the_reward_of_an_episode_is_the_mean_of_its_speakers(
    metrics_of_teams: dict[str, float],
) -> None:
    assert metrics_of_teams["rollout/reward"] == (0.75 + 0.5 + 0.25 + 0.25) / 4


def test_spread_of_one_speaker_is_spread_of_the_problem(metrics_of_teams: dict[str, float]) -> None:
    # the rewards of the planners are equal
    assert metrics_of_teams["rollout/zero_spread_groups"] == 1 / 2


def test_each_of_several_speakers_has_its_own_metrics(
    metrics_of_teams: dict[str, float], metrics: dict[str, float]
) -> None:
    by_speaker = {
        name: value for name, value in metrics_of_teams.items() if "rollout/speaker/" in name
    }
    assert by_speaker == {
        "rollout/speaker/planner/avg_turns": 2.0,
        "rollout/speaker/planner/avg_sampled_tokens": 6.0,
        "rollout/speaker/planner/avg_tool_calls": 1.0,
        "rollout/speaker/planner/reward": 0.5,
        "rollout/speaker/searcher/avg_turns": 2.0,
        "rollout/speaker/searcher/avg_sampled_tokens": 4.0,
        "rollout/speaker/searcher/avg_tool_calls": 0.0,
        "rollout/speaker/searcher/reward": 0.375,
    }
    assert not [name for name in metrics if "speaker" in name]


def test_solved_shares_count_episodes_not_speakers() -> None:
    played, scores = zip(*TEAMS, strict=True)
    assert outcomes_by_problem(played, scores, "exact") == {
        "g": [True, True],
        "h": [False, False],
    }
