"""Group trajectories of several speakers by episode, and find their answers and rewards."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from agentfly_core.records.trajectory import Scored, Trajectory, Unscored, instance

ABSOLUTE, RELATIVE = 1e-6, 1e-10
"""Smaller differences between rewards are rounding errors of float32 near 1 (ABSOLUTE) or of
float64 (RELATIVE).
"""
Earned = Mapping[str, float]
"""Rewards of an episode by speaker: `{"planner": 0.5, "searcher": 1.0}`."""


def episode_numbers(trajectories: Iterable[Trajectory]) -> list[int]:
    """Return the episode number (0, 1, ...) of each trajectory.

    A trajectory whose agent already occurred starts the next episode.
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
    """Return the average activity of each speaker per episode: `{"planner": {"avg_turns": 3.0,
    "avg_sampled_tokens": 41.5, "avg_tool_calls": 0.0}}`.
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
    """Return the trajectory of an episode that rewards score.

    The speaker with the answer comes first, then the speaker `main`, then the first trajectory.
    """
    answers = [one for one in episode if one.answered is not None]
    candidates = answers or [one for one in episode if one.agent == main]
    calls = [min((turn.call for turn in one.turns), default=math.inf) for one in episode]
    return candidates[0] if candidates else episode[calls.index(min(calls))]


def apart_name(reward: str, speaker: str) -> str:
    """Return the key in `Scored.rewards` of a reward's separate value for one speaker."""
    return f"{reward}/speaker/{speaker}"


def own_value(by_name: Mapping[str, float], agent: str, default: float) -> float:
    """Return the value of a speaker's own name, else the value of its role, else the default.

    For `{"worker": 0.5, "worker/2": 1.0}` this is 1.0 for worker/2, and 0.5 for worker and
    worker/3.
    """
    role, number = instance(agent)
    return by_name.get(f"{role}/{number}", by_name.get(role, default))


def own_reward(scored: Scored, reward: str, agent: str) -> float:
    """Return the unweighted value of a reward for a speaker: with the rewards `{"exact": 1.0,
    "exact/speaker/planner": 0.5}` it is 0.5 for the planner.
    """
    start = apart_name(reward, "")
    apart = {k.removeprefix(start): v for k, v in scored.rewards.items() if k.startswith(start)}
    return own_value(apart, agent, scored.rewards[reward])


def compared_as(trajectory: Trajectory, scored: Scored) -> str:
    """Return the name under which advantages compare a trajectory with other episodes.

    This is the speaker's role, or the instance, such as `worker/2`, if a reward names the instance.
    """
    role, number = instance(trajectory.agent)
    name = f"{role}/{number}"
    return name if any(key.endswith(apart_name("", name)) for key in scored.rewards) else role


def group_of(trajectory: Trajectory, scored: Scored) -> str:
    """Return the id of the group of trajectories with which advantages compare this one."""
    name = compared_as(trajectory, scored)
    return f"{trajectory.group}/{name}" if "/" in name else trajectory.group


def earned_by_speaker(episode: Sequence[Trajectory], scores: Mapping[str, Scored]) -> Earned | None:
    """Return the reward of each trained speaker in an episode, or None if a score is missing.

    Speakers of a role that are compared together have one mean reward. If no speaker is trained,
    for example with a chat service as the policy, all speakers count.
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
    """Return the mean reward of an episode's speakers. None if a score is missing."""
    rewards = earned_by_speaker(episode, scores)
    return None if rewards is None else fmean(rewards.values())


def any_spread(episodes: Iterable[Earned]) -> bool:
    """Whether a speaker's rewards differ between a problem's episodes; equal ones train nothing."""
    rewards: defaultdict[str, list[float]] = defaultdict(list)
    for episode in episodes:
        for speaker, reward in episode.items():
            rewards[speaker].append(reward)
    return any(differ(min(values), max(values)) for values in rewards.values())


def reaches(reward: float, bound: float) -> bool:
    """Whether a reward is at least `bound` up to rounding: 10 x 0.1 reaches 1."""
    return reward >= bound or not differ(reward, bound)


def differ(least: float, greatest: float) -> bool:
    """Whether two values differ by more than rounding errors: 0.3 and 0.1 + 0.2 do not."""
    return greatest - least > max(ABSOLUTE, RELATIVE * abs(least), RELATIVE * abs(greatest))
