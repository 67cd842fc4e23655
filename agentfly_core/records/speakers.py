"""Episodes with several speakers (agents that talk with each other).

The functions group the speakers' trajectories by episode, and find the answer of an episode and the
reward of each speaker.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from agentfly_core.records.trajectory import Scored, Trajectory, Unscored, instance

ABSOLUTE, RELATIVE = 1e-6, 1e-10
"""Tolerances for the difference between two rewards. Differences below ABSOLUTE are rounding errors
of float32 for rewards near 1. Relative differences below RELATIVE are rounding errors of float64.
"""
Earned = Mapping[str, float]
"""The reward of each speaker in an episode: `{"planner": 0.5, "searcher": 1.0}`."""


def episode_numbers(trajectories: Iterable[Trajectory]) -> list[int]:
    """Return, for each trajectory, the index (0, 1, ...) of the episode to which it belongs.

    The same episode may occur several times in `trajectories`. Each occurrence has its own index:
    the second trajectory with the same `episode` and `agent` belongs to the second occurrence.
    """
    numbers: dict[tuple[str, int], int] = {}
    seen: Counter[tuple[str, str]] = Counter()
    result = []
    for trajectory in trajectories:
        speaker = trajectory.episode, trajectory.agent
        result.append(numbers.setdefault((trajectory.episode, seen[speaker]), len(numbers)))
        seen[speaker] += 1
    return result


def by_episode(trajectories: Sequence[Trajectory]) -> list[list[Trajectory]]:
    """Group trajectories by episode, in the order of each episode's first trajectory."""
    episodes: defaultdict[int, list[Trajectory]] = defaultdict(list)
    for number, trajectory in zip(episode_numbers(trajectories), trajectories, strict=True):
        episodes[number].append(trajectory)
    return list(episodes.values())


def activity(trajectories: Sequence[Trajectory]) -> dict[str, dict[str, float]]:
    """Return the turns, sampled tokens and tool calls of each speaker, as averages per episode:
    `{"planner": {"avg_turns": 3.0, "avg_sampled_tokens": 41.5, "avg_tool_calls": 0.0}}`.
    """
    episodes = len({*episode_numbers(trajectories)})
    turns, tokens, calls = Counter[str](), Counter[str](), Counter[str]()
    for one in trajectories:
        if one.turns:
            turns[one.speaker] += len(one.turns)
            tokens[one.speaker] += one.sampled_tokens
            calls[one.speaker] += sum(len(turn.reply.calls) for turn in one.turns)
    return {
        name: {
            "avg_turns": turns[name] / episodes,
            "avg_sampled_tokens": tokens[name] / episodes,
            "avg_tool_calls": calls[name] / episodes,
        }
        for name in sorted(turns)
    }


def answering(episode: Sequence[Trajectory], main: str = "") -> Trajectory:
    """Return the trajectory of an episode that is passed to the rewards.

    This is the trajectory of the speaker that set the answer. If no speaker set an answer, it is
    the trajectory of the speaker `main`, or else of the speaker that replied first.
    """
    answers = [one for one in episode if one.answered is not None]
    candidates = answers or [one for one in episode if one.agent == main]
    calls = [min((turn.call for turn in one.turns), default=math.inf) for one in episode]
    return candidates[0] if candidates else episode[calls.index(min(calls))]


def apart_name(reward: str, speaker: str) -> str:
    """Return the key under which `Scored.rewards` has a speaker's own value of a reward.

    Example: `exact/speaker/planner`. `speaker` is a speaker's name or a role.
    """
    return f"{reward}/speaker/{speaker}"


def own_value(by_name: Mapping[str, float], agent: str, default: float) -> float:
    """Return the value in `by_name` for the speaker `agent`.

    If the speaker's full name, such as `worker/2`, is missing, the value of the role `worker` is
    returned. If the role is missing, too, `default` is returned. For `{"worker": 0.5, "worker/2":
    1.0}` the result is 1.0 for worker/2, and 0.5 for worker and worker/3.
    """
    role, number = instance(agent)
    return by_name.get(f"{role}/{number}", by_name.get(role, default))


def own_reward(scored: Scored, reward: str, agent: str) -> float:
    """Return the unweighted value of a reward for the speaker `agent`.

    With the rewards `{"exact": 1.0, "exact/speaker/planner": 0.5}`, the value of `exact` is 0.5 for
    the planner and 1.0 for all other speakers.
    """
    start = apart_name(reward, "")
    apart = {k.removeprefix(start): v for k, v in scored.rewards.items() if k.startswith(start)}
    return own_value(apart, agent, scored.rewards[reward])


def compared_as(trajectory: Trajectory, scored: Scored) -> str:
    """Return the role or the speaker whose trajectories form the group of a trajectory.

    The role `worker` means that the trajectory is compared with all workers of the problem's
    episodes. If a reward has a separate value for the speaker `worker/2`, the result is `worker/2`.
    The trajectory is then compared only with the trajectories of `worker/2` in the other episodes.
    """
    role, number = instance(trajectory.agent)
    name = f"{role}/{number}"
    return name if any(key.endswith(apart_name("", name)) for key in scored.rewards) else role


def group_of(trajectory: Trajectory, scored: Scored) -> str:
    """Return the id of the group to which a trajectory belongs.

    Advantages compare the trajectories of a group with each other.
    """
    name = compared_as(trajectory, scored)
    return f"{trajectory.group}/{name}" if "/" in name else trajectory.group


def earned_by_speaker(episode: Sequence[Trajectory], scores: Mapping[str, Scored]) -> Earned | None:
    """Return the reward of each trained speaker in an episode, or None if a score is missing.

    The speakers `worker` and `worker/2` have the same role `worker`. Unless they have separate
    rewards, the result has one entry for the role: their mean reward. Trained speakers without a
    turn are left out. If no trained speaker has a turn, the result has the rewards of all speakers.
    """
    # a speaker without a turn has no tokens to train
    trained = [one for one in episode if one.turns and not one.policy] or episode
    rewards: defaultdict[str, list[float]] = defaultdict(list)
    for trajectory in trained:
        scored = scores[trajectory.id]
        if isinstance(scored.reward, Unscored):
            return None
        rewards[compared_as(trajectory, scored)].append(scored.reward)
    return {speaker: fmean(values) for speaker, values in rewards.items()}


def episode_reward(episode: Sequence[Trajectory], scores: Mapping[str, Scored]) -> float | None:
    """Return the mean reward of an episode's speakers, or None if a score is missing."""
    rewards = earned_by_speaker(episode, scores)
    return None if rewards is None else fmean(rewards.values())


def any_spread(episodes: Iterable[Earned]) -> bool:
    """Whether at least one speaker has different rewards in different episodes of a problem.

    If the rewards of each speaker are equal in all episodes, all advantages are 0, and the policy
    learns nothing from the problem.
    """
    rewards: defaultdict[str, list[float]] = defaultdict(list)
    for episode in episodes:
        for speaker, reward in episode.items():
            rewards[speaker].append(reward)
    return any(differ(min(values), max(values)) for values in rewards.values())


def reaches(reward: float, bound: float) -> bool:
    """Whether a reward is at least `bound`. Rounding errors are ignored: 10 x 0.1 reaches 1."""
    return reward >= bound or not differ(reward, bound)


def differ(least: float, greatest: float) -> bool:
    """Whether two values differ by more than rounding errors. 0.3 and 0.1 + 0.2 do not differ."""
    return greatest - least > max(ABSOLUTE, RELATIVE * abs(least), RELATIVE * abs(greatest))
