"""Compute metrics of played episodes from trajectories, scores and timings."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Literal

from agentfly_core.records.messages import client_text, echo_key
from agentfly_core.records.speakers import (
    Earned,
    activity,
    any_spread,
    by_episode,
    earned_by_speaker,
    reaches,
)
from agentfly_core.records.timing import Doing, Timing, union
from agentfly_core.records.trajectory import (
    BadCall,
    Ending,
    Message,
    Scored,
    ToolCall,
    Trajectory,
    Turn,
    Unscored,
)
from agentfly_core.system.formats.json_value import JSON

ZERO_SPREAD = "rollout/zero_spread_groups"
Cause = Literal["text", "calls", "earlier"]
"""What an agent changed in the conversation before its next request: the text of an earlier reply
(`text`), the tool calls of an earlier reply (`calls`), or anything else, such as other messages or
the tools (`earlier`). With `earlier`, all replies that are still in the conversation are unchanged.
"""
CAUSES: tuple[Cause, ...] = ("text", "calls", "earlier")


def rollout_metrics(
    trajectories: Sequence[Trajectory],
    scored: Sequence[Scored],
    timings: Sequence[Timing],
    goal: str,
    tools: Sequence[str],
) -> dict[str, float]:
    """Compute the metrics of the episodes of a stage, by name.

    Without episodes, the result is empty.

    All names begin with `rollout/`, except `reward_extra/*`. Most metrics are means or shares over
    all episodes. Times are in seconds. Some metrics are computed differently:

    - `reward`, `reward_extra/*`: means, maxima and minima over scored episodes
    - `success`: the share of scored episodes in which the reward named `goal` is 1 or more
    - `tokens_per_second`: the number of sampled tokens divided by the seconds in which at least one
      episode was played
    - `zero_spread_groups`: the share of problems with the same reward in all scored episodes. If
      several speakers (agents) are trained, the reward of each speaker must be the same in all of
      its scored episodes.
    - `avg_bad_calls`: unreadable calls, plus calls of tools that are not in `tools`
    - `tool_calls/NAME`, `tool_errors/NAME`: computed only for tools in `tools`, because a model may
      invent names
    - `avg_lenient_calls`: readable calls that deviate from the template's format
    - `rewritten_replies`: the share of sampled replies that the chat template would write with
      different tokens
    - `speaker/NAME/...`: the metrics of each speaker, if there are several
    """
    if not trajectories:
        return {}
    played = _played(trajectories, scored)
    rollout = {
        **played.conversation(tools),
        **played.times(timings),
        **played.rewards(goal),
        **played.speakers(),
    }
    metrics = {f"rollout/{name}": value for name, value in rollout.items()}
    for name, values in rewards_by_name(trajectories, scored).items():
        metrics[f"reward_extra/{name}/mean"] = fmean(values)
        metrics[f"reward_extra/{name}/max"] = max(values)
        metrics[f"reward_extra/{name}/min"] = min(values)
    return metrics


def rewards_by_name(
    trajectories: Sequence[Trajectory], scored: Iterable[Scored]
) -> dict[str, list[float]]:
    """Return the values of each reward in the scored episodes: `{"exact": [1.0, 0.0]}`."""
    by_name: defaultdict[str, list[float]] = defaultdict(list)
    for score in _played(trajectories, scored).scores:
        for name, value in score.rewards.items():
            by_name[name].append(value)
    return dict(by_name)


def solved(scored: Scored, goal: str) -> bool | None:
    """Whether the reward named `goal` is 1 or more. None if the episode is unscored.

    An episode with several speakers (agents) has a score for each speaker. The result is the same
    for each of these scores.
    """
    if isinstance(scored.reward, Unscored):
        return None
    return reaches(scored.rewards[goal], 1.0)


def solved_by_problem(
    trajectories: Iterable[Trajectory], scored: Iterable[Scored], goal: str
) -> dict[str, float]:
    """Return, for each problem, the share of its scored episodes that are solved:
    `{"add-41-58": 1.0}`. See `solved` for `goal`.
    """
    outcomes = outcomes_by_problem(trajectories, scored, goal)
    return {problem: fmean(values) for problem, values in outcomes.items()}


def outcomes_by_problem(
    trajectories: Iterable[Trajectory], scored: Iterable[Scored], goal: str
) -> dict[str, list[bool]]:
    """Return, for each problem, whether each of its scored episodes was solved:
    `{"add-41-58": [True, False]}`.

    An episode is solved if its reward named `goal` is 1 or more. The episodes are in the order of
    `trajectories`.
    """
    by_id = {s.trajectory_id: solved(s, goal) for s in scored}
    outcomes: defaultdict[str, list[bool]] = defaultdict(list)
    for episode in by_episode([*trajectories]):
        if (outcome := by_id[episode[0].id]) is not None:
            outcomes[episode[0].problem.id].append(outcome)
    return dict(outcomes)


def point(step: int, metrics: Mapping[str, float], time_ms: int) -> dict[str, JSON]:
    """Return the metrics of a step in the form of metrics.json: `{"step": 7, "time_ms": ...,
    "metrics": {...}}`.

    Infinite values and NaN are left out.
    """
    finite = {name: float(value) for name, value in sorted(metrics.items()) if math.isfinite(value)}
    return {"step": step, "time_ms": time_ms, "metrics": finite}


def _share(marks: Iterable[bool]) -> float:
    """Return the share of true values, or 0 for an empty sequence."""
    values = [*marks]
    return fmean(values) if values else 0.0


@dataclass(frozen=True)
class _Played:
    """The trajectories of a stage. `scored` maps the id of each trajectory to its score."""

    trajectories: Sequence[Trajectory]
    scored: Mapping[str, Scored]

    @cached_property
    def episodes(self) -> list[list[Trajectory]]:
        """The trajectories of each episode."""
        return by_episode(self.trajectories)

    @property
    def scores(self) -> list[Scored]:
        """The score of the first trajectory of each episode."""
        return [self.scored[episode[0].id] for episode in self.episodes]

    def conversation(self, tools: Sequence[str]) -> dict[str, float]:
        """Compute the metrics of the episodes' endings, turns, tokens and tool calls.

        `tools` has the names of the tools. Calls with other names count as bad calls.
        """
        turns = [turn for t in self.trajectories for turn in t.turns]
        sampled = [turn for turn in turns if turn.sampled]
        reasoned = [turn.sampled[0].tokens for turn in sampled if turn.reply.reasoning]
        calls = [call for turn in turns for call in turn.reply.calls]
        read = [call.name for call in calls if not isinstance(call, BadCall)]
        by_tool = Counter(name for name in read if name in tools)
        bad_calls = len(calls) - by_tool.total()
        lenient = sum(isinstance(call, ToolCall) and call.lenient for call in calls)
        errors = Counter(o.tool for t in self.trajectories for o in t.observations if o.error)
        endings, episodes = [one[0].ending for one in self.episodes], len(self.episodes)
        return {
            **{f"ending/{end.value}": fmean(ending is end for ending in endings) for end in Ending},
            "avg_turns": len(turns) / episodes,
            "avg_sampled_tokens": sum(t.sampled_tokens for t in self.trajectories) / episodes,
            "avg_given_tokens": sum(len(turn.given.tokens) for turn in turns) / episodes,
            "avg_reasoning_tokens": sum(map(len, reasoned)) / episodes,
            "cut_replies": _share(turn.sampled[-1].finish == "length" for turn in sampled),
            "rewritten_replies": _share(turn.reply.rewritten for turn in sampled),
            **history_rewrites(self.trajectories),
            "avg_tool_calls": len(calls) / episodes,
            "avg_bad_calls": bad_calls / episodes,
            "avg_lenient_calls": lenient / episodes,
            "bad_call_share": bad_calls / max(len(calls), 1),
            "avg_tool_errors": errors.total() / episodes,
            **{f"tool_calls/{name}": by_tool[name] / episodes for name in tools},
            **{f"tool_errors/{name}": errors[name] / episodes for name in tools},
        }

    def times(self, timings: Sequence[Timing]) -> dict[str, float]:
        """Compute the seconds per episode and the sampled tokens per second.

        The result is empty if `timings` is empty.
        """
        if not timings:
            return {}
        doings: tuple[Doing, ...] = ("generating", "tools", "rewards", "waiting")
        spent = {doing: [timing.seconds(doing) for timing in timings] for doing in doings}
        seconds = [sum(episode) for episode in zip(*spent.values(), strict=True)]
        playing = union((span.start, span.end) for t in timings for span in t.spans)
        # turns that forked episodes share were sampled only once
        turns = [turn for t in self.trajectories for turn in t.own_turns]
        sampled = sum(len(span.tokens) for turn in turns for span in turn.sampled)
        return {
            "time/min": min(seconds),
            "time/max": max(seconds),
            "time/avg": fmean(seconds),
            **{f"time/{doing}": fmean(values) for doing, values in spent.items()},
            **({"tokens_per_second": sampled / playing} if playing > 0 else {}),
        }

    def rewards(self, goal: str) -> dict[str, float]:
        """Compute the metrics of rewards.

        These are the mean reward, the success, the share of unscored episodes, and
        `zero_spread_groups` (see `rollout_metrics`). The success is the share of scored episodes in
        which the reward named `goal` is 1 or more. Without scored episodes, the mean reward and the
        success are left out.
        """
        rewards = [earned_by_speaker(episode, self.scored) for episode in self.episodes]
        problems: defaultdict[str, list[Earned]] = defaultdict(list)
        for episode, of_speakers in zip(self.episodes, rewards, strict=True):
            problems[episode[0].problem.id] += [of_speakers] if of_speakers else []
        figures = {
            "unscored": fmean(of_speakers is None for of_speakers in rewards),
            "zero_spread_groups": fmean(not any_spread(problem) for problem in problems.values()),
        }
        scored = [fmean(of_speakers.values()) for of_speakers in rewards if of_speakers]
        outcomes = [solved(score, goal) for score in self.scores]
        if scored:
            reached = fmean(outcome for outcome in outcomes if outcome is not None)
            figures |= {"reward": fmean(scored), "success": reached}
        return figures

    def speakers(self) -> dict[str, float]:
        """Compute turns, sampled tokens and tool calls per episode for each speaker, and the mean
        reward of each speaker.

        The mean reward of a speaker is computed over scored episodes in which the speaker has
        turns. The result is empty if there are fewer than two speakers.
        """
        did = activity(self.trajectories)
        if len(did) < 2:
            return {}
        metrics: dict[str, float] = {}
        for name, figures in did.items():
            own = [one.id for one in self.trajectories if one.turns and one.speaker == name]
            rewards = [self.scored[trajectory].reward for trajectory in own]
            if scored := [reward for reward in rewards if not isinstance(reward, Unscored)]:
                figures["reward"] = fmean(scored)
            metrics |= {f"speaker/{name}/{figure}": value for figure, value in figures.items()}
        return metrics


def _played(trajectories: Sequence[Trajectory], scored: Iterable[Scored]) -> _Played:
    return _Played(trajectories, {score.trajectory_id: score for score in scored})


def history_rewrites(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Return the share of turns that start a new context because the agent changed earlier
    messages.

    The key `history_rewrites` has the total share, for example 0.1. A key such as
    `history_rewrites/text` has the share of one kind of change. Assistant messages in the first
    prompt of an agent are few-shot examples and count as unchanged.
    """
    causes = Counter(cause for one in trajectories for cause in _causes(one))
    turns = max(1, sum(len(one.turns) for one in trajectories))
    by_cause = {f"history_rewrites/{cause}": causes[cause] / turns for cause in CAUSES}
    return {"history_rewrites": causes.total() / turns, **by_cause}


def _causes(trajectory: Trajectory) -> Iterator[Cause]:
    turns = trajectory.turns
    examples = {echo_key(message) for turn in turns[:1] for message in _own_messages(turn)}
    replies = {echo_key(turn.reply): turn.reply for turn in turns}
    for turn in turns[1:]:
        echoes = {echo_key(message): message for message in _own_messages(turn)}
        foreign = [echoes[key] for key in echoes if key not in examples | replies.keys()]
        if foreign:
            text = client_text(foreign[0]).strip()
            yield "calls" if text in map(_text, replies.values()) else "text"
        elif echoes.keys() - examples:
            yield "earlier"


def _own_messages(turn: Turn) -> list[Message]:
    """Return the assistant messages in the input of a turn."""
    return [one for one in turn.read if isinstance(one, Message) and one.role == "assistant"]


def _text(reply: Message) -> str:
    return client_text(reply).strip()
