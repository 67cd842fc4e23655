"""Numbers about what was played: from trajectories, scores and timings to named metrics."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from agentfly_core.formats.json_value import JSON
from agentfly_core.records.timing import Doing, Timing, union
from agentfly_core.records.trajectory import (
    BadCall,
    Ending,
    Problem,
    Scored,
    Trajectory,
    Unscored,
)

ZERO_SPREAD = "agent/rollout/zero_spread_groups"


def rollout_metrics(
    trajectories: Sequence[Trajectory],
    scored: Sequence[Scored],
    timings: Sequence[Timing],
    goal: str,
    tools: Sequence[str],
) -> dict[str, float]:
    """What a stage played, by metric name; empty when it played nothing.

    Under `agent/rollout/`: `reward` and `success` (like `reward_extra/*`) are over scored
    trajectories, `tokens_per_second` is sampled tokens over the time in which any episode was
    played, `zero_spread_groups` the share of groups of equal rewards; all others are means or
    shares over all trajectories, times in seconds. Calls are counted by name for the given `tools`
    only, since a model may make up any name: `avg_bad_calls` counts calls of other tools and calls
    that could not be read.
    """
    if not trajectories:
        return {}
    rollout = {
        **_conversation(trajectories, tools),
        **_times(timings, sum(t.sampled_tokens for t in trajectories)),
        **_rewards(trajectories, scored, goal),
    }
    metrics = {f"agent/rollout/{name}": value for name, value in rollout.items()}
    by_reward: defaultdict[str, list[float]] = defaultdict(list)
    for score in scored:
        for name, value in score.rewards.items():
            by_reward[name].append(value)
    for name, values in by_reward.items():
        metrics[f"reward_extra/{name}/mean"] = fmean(values)
        metrics[f"reward_extra/{name}/max"] = max(values)
        metrics[f"reward_extra/{name}/min"] = min(values)
    return metrics


def solved(scored: Scored, goal: str) -> bool | None:
    """Whether the reward named `goal` was reached in full (1 or more); None when the trajectory
    could not be scored.
    """
    if isinstance(scored.reward, Unscored):
        return None
    return scored.rewards[goal] >= 1.0


def solved_by_problem(
    trajectories: Iterable[Trajectory], scored: Iterable[Scored], goal: str
) -> dict[str, float]:
    """The share of each problem's scored episodes that were solved: `{"add-41-58": 1.0}`."""
    outcomes = outcomes_by_problem(trajectories, scored, goal)
    return {problem: fmean(values) for problem, values in outcomes.items()}


def outcomes_by_problem(
    trajectories: Iterable[Trajectory], scored: Iterable[Scored], goal: str
) -> dict[str, list[bool]]:
    """Whether each problem's scored episodes were solved, in their order:
    `{"add-41-58": [True, False]}`.
    """
    found = {s.trajectory_id: solved(s, goal) for s in scored}
    outcomes: defaultdict[str, list[bool]] = defaultdict(list)
    for trajectory in trajectories:
        if (outcome := found[trajectory.id]) is not None:
            outcomes[trajectory.problem.id].append(outcome)
    return dict(outcomes)


def tag(problem: Problem, fact: str) -> str:
    """The value of a problem's fact, as text; raises ValueError where it has no such fact."""
    if fact not in problem.facts:
        raise ValueError(
            f"evaluate.by: the problem {problem.id!r} has no fact {fact!r}, it has "
            f"{', '.join(problem.facts) or 'none'}. Give it to each held-out problem, or leave "
            "evaluate.by out."
        )
    value = problem.facts[fact]
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def point(step: int, metrics: Mapping[str, float], time_ms: int) -> dict[str, JSON]:
    """What a step leaves in a file and MLflow is sent:
    `{"step": 7, "time_ms": ..., "metrics": {...}}`.

    Numbers that are not finite are left out: a missing number is never a zero.
    """
    finite = {name: float(value) for name, value in sorted(metrics.items()) if math.isfinite(value)}
    return {"step": step, "time_ms": time_ms, "metrics": finite}


def _conversation(trajectories: Sequence[Trajectory], tools: Sequence[str]) -> dict[str, float]:
    """How episodes ended, their turns and tokens, and the calls of tools in them."""
    turns = [turn for t in trajectories for turn in t.turns]
    replies = [span for turn in turns for span in turn.sampled[-1:]]
    calls = [call for turn in turns for call in turn.reply.calls]
    read = [call.name for call in calls if not isinstance(call, BadCall)]
    by_tool = Counter(name for name in read if name in tools)
    bad_calls = len(calls) - by_tool.total()
    errors = Counter(o.tool for t in trajectories for o in t.observations if o.error)
    episodes = len(trajectories)
    return {
        **{f"ending/{end.value}": fmean(t.ending is end for t in trajectories) for end in Ending},
        "avg_turns": len(turns) / episodes,
        "avg_sampled_tokens": fmean(t.sampled_tokens for t in trajectories),
        "avg_given_tokens": sum(len(turn.given.tokens) for turn in turns) / episodes,
        "cut_replies": fmean(span.finish == "length" for span in replies) if replies else 0.0,
        "avg_tool_calls": len(calls) / episodes,
        "avg_bad_calls": bad_calls / episodes,
        "bad_call_share": bad_calls / max(len(calls), 1),
        "avg_tool_errors": errors.total() / episodes,
        **{f"tool_calls/{name}": by_tool[name] / episodes for name in tools},
        **{f"tool_errors/{name}": errors[name] / episodes for name in tools},
    }


def _times(timings: Sequence[Timing], sampled_tokens: int) -> dict[str, float]:
    """Seconds of an episode, and sampled tokens per second; empty without timings."""
    if not timings:
        return {}
    doings: tuple[Doing, ...] = ("generating", "tools", "rewards", "waiting")
    spent = {doing: [timing.seconds(doing) for timing in timings] for doing in doings}
    seconds = [sum(episode) for episode in zip(*spent.values(), strict=True)]
    playing = union((span.start, span.end) for t in timings for span in t.spans)
    return {
        "time/min": min(seconds),
        "time/max": max(seconds),
        "time/avg": fmean(seconds),
        **{f"time/{doing}": fmean(values) for doing, values in spent.items()},
        **({"tokens_per_second": sampled_tokens / playing} if playing > 0 else {}),
    }


def _rewards(
    trajectories: Sequence[Trajectory], scored: Sequence[Scored], goal: str
) -> dict[str, float]:
    """The mean reward and success, and the shares of unscored episodes and of equal groups."""
    by_id = {s.trajectory_id: s.reward for s in scored}
    groups: defaultdict[str, set[float]] = defaultdict(set)
    for trajectory in trajectories:
        reward = by_id[trajectory.id]
        groups[trajectory.group] |= set() if isinstance(reward, Unscored) else {reward}
    found = {
        "unscored": fmean(isinstance(s.reward, Unscored) for s in scored),
        "zero_spread_groups": fmean(len(values) < 2 for values in groups.values()),
    }
    rewards = [s.reward for s in scored if not isinstance(s.reward, Unscored)]
    outcomes = [outcome for s in scored if (outcome := solved(s, goal)) is not None]
    if rewards:
        found |= {"reward": fmean(rewards), "success": fmean(outcomes)}
    return found
