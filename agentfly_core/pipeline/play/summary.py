"""Statistics of a play, i.e. of episodes that are played outside of training."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from statistics import fmean

from agentfly_core.config.tasks import SINGLE
from agentfly_core.pipeline.play.episodes import Played
from agentfly_core.records.intervals import Interval, Mean, Rate, mean
from agentfly_core.records.speakers import by_episode, episode_reward
from agentfly_core.records.trajectory import Scored, Trajectory, Unscored
from agentfly_core.runs.metrics import solved_by_problem
from agentfly_core.runs.summary import rates_by
from agentfly_core.system.formats.text import counted


@dataclass(frozen=True)
class Figures:
    """Statistics of played episodes: counts, the mean reward and the success rate, with 95 %
    intervals.

        Figures(
            episodes=8, problems=8, endings={"terminal": 7, "max_turns": 1}, unscored=0, causes={},
            reward=Mean(0.875, (0.498, 1.0), 8), success=Rate(0.875, (0.53, 0.98), 8),
            success_by_task={}, tool_calls=16, tool_errors=1, replies=24, cut_replies=3,
            episodes_per_second=312.4,
        )

    For the intervals, all episodes of a problem count as one sample. `reward` and `success` are
    None if no episode could be scored. If the experiment has several tasks, `success_by_task`
    contains the success rate of each task with a scored episode. `causes` counts the reasons why
    episodes failed or are unscored. `cut_replies` counts the replies that ended at a token limit.
    """

    episodes: int
    problems: int
    endings: Mapping[str, int]
    unscored: int
    causes: Mapping[str, int]
    reward: Mean | None
    success: Rate | None
    success_by_task: Mapping[str, Rate]
    tool_calls: int
    tool_errors: int
    replies: int
    cut_replies: int
    episodes_per_second: float

    def lines(self) -> list[str]:
        """Return the statistics as lines of text for the user.

        Example: `["8 episodes of 8 problems: 8 terminal", "solved 100.0%", ...]`.
        """
        endings = ", ".join(f"{count} {name}" for name, count in self.endings.items())
        unscored = f", {self.unscored} unscored" if self.unscored else ""
        played = f"{counted(self.episodes, 'episode')} of {counted(self.problems, 'problem')}"
        text = [f"{played}: {endings}{unscored}"]
        text += [
            f"  {count} failed or unscored: {why}" for why, count in list(self.causes.items())[:3]
        ]
        if self.reward:
            interval = self.reward.interval
            shown = (
                _between(interval, ".3f") if interval else " (no interval: few or equal rewards)"
            )
            text.append(f"mean reward {self.reward.value:.3f}{shown}")
        if self.success:
            text.append(f"solved {self.success.share:.1%}{_between(self.success.interval, '.1%')}")
        for task, rate in self.success_by_task.items():
            text.append(
                f"  {task}: {rate.share:.1%} of {counted(rate.problems, 'problem')}"
                f"{_between(rate.interval, '.1%')}"
            )
        text.append(
            f"{counted(self.tool_calls, 'tool call')}, {self.tool_errors} answered with an error"
        )
        if self.cut_replies:
            limits = "agent.max_tokens, agent.max_model_len or agent.max_sampled_tokens"
            replies = counted(self.replies, "reply")
            text.append(f"{self.cut_replies} of {replies} cut at a token limit (see {limits})")
        text.append(f"{self.episodes_per_second:.3g} episodes/s, stored and scored")
        return text


def figures(played: Played, goal: str) -> Figures:
    """Compute the statistics of played episodes.

    `goal` is the name of the reward that decides whether an episode is solved, or "" for an
    experiment without rewards.
    """
    episodes = by_episode(played.episodes)
    scores = {scored.trajectory_id: scored for scored in played.scores}
    rewards = _rewards(episodes, scores)
    calls = [call for t in played.episodes for turn in t.turns for call in turn.reply.calls]
    errors = [o for t in played.episodes for o in t.observations if o.error]
    replies = [turn.sampled for t in played.episodes for turn in t.turns]
    cut = [spans for spans in replies if spans and spans[-1].finish == "length"]
    causes = [
        first.error or (reward.reason if isinstance(reward, Unscored) else "")
        for first, *_ in episodes
        for reward in [scores[first.id].reward]
    ]
    solved = solved_by_problem(played.episodes, played.scores, goal)
    problems = {t.problem.id: t.problem for t in played.episodes}
    by_task = rates_by(attrgetter("task"), problems.values(), solved)
    return Figures(
        episodes=len(episodes),
        problems=len(problems),
        endings=dict(Counter(episode[0].ending.value for episode in episodes)),
        unscored=len(episodes) - sum(map(len, rewards.values())),
        causes=dict(Counter(filter(None, causes)).most_common()),
        reward=mean({problem: fmean(values) for problem, values in rewards.items()}),
        success=Rate.of(solved) if solved else None,
        success_by_task={task: rate for task, rate in by_task.items() if task != SINGLE},
        tool_calls=len(calls),
        tool_errors=len(errors),
        replies=len(replies),
        cut_replies=len(cut),
        episodes_per_second=len(episodes) / played.seconds,
    )


def _rewards(
    episodes: Sequence[Sequence[Trajectory]], scores: Mapping[str, Scored]
) -> dict[str, list[float]]:
    """Return the rewards of the scored episodes: a list of rewards for each problem id."""
    rewards: defaultdict[str, list[float]] = defaultdict(list)
    for episode in episodes:
        if (reward := episode_reward(episode, scores)) is not None:
            rewards[episode[0].problem.id].append(reward)
    return rewards


def _between(interval: Interval, pattern: str) -> str:
    low, high = (format(end, pattern) for end in interval)
    return f", 95 % interval {low} to {high} by problem"
