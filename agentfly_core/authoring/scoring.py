"""Compute the scores of episodes as weighted sums of several rewards."""

import asyncio
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from agentfly_core.authoring.event_loop import NONE_HELD, HeldCalls, run, without_held_calls
from agentfly_core.authoring.reward import Grade, Reward
from agentfly_core.records.speakers import (
    answering,
    apart_name,
    by_episode,
    episode_numbers,
    own_value,
)
from agentfly_core.records.trajectory import (
    USABLE,
    Ending,
    Score,
    Scored,
    Trajectory,
    Unscored,
    instance,
    is_usable,
)

AT_ONCE = 32


async def score(
    trajectories: Sequence[Trajectory],
    rewards: Mapping[Reward, float],
    main: str = "",
    among: Sequence[Trajectory] = (),
    held: HeldCalls = NONE_HELD,
) -> list[Scored]:
    """Score trajectories with `rewards`, a mapping of rewards to weights.

    The result has the order of `trajectories`. If an episode has several speakers, rewards read the
    trajectory with the answer; see `speakers.answering`. Without an answer, rewards read the
    trajectory of the speaker `main`, or else of the speaker that replied first. Scores that were
    computed during the episode are reused. `held` contains reward calls that have blocked the event
    loop. These calls are skipped, and their episodes are Unscored.

    For a reward `exact`, the keys of `Scored.rewards` are `exact`, `exact/tag` for the partial
    score `tag`, `exact/speaker/worker` for the role `worker`, and `exact/speaker/worker/2` for the
    second worker. The values are not weighted.

    An episode is Unscored if it FAILED, or if one of its rewards gave no score. It is also Unscored
    if `Score.by_speaker` contains an unknown speaker. A speaker is unknown if none of the
    trajectories in `among` has this speaker. If `among` is empty, `trajectories` is used.
    """
    # as many tasks as the largest `concurrency`, because fewer would silently lower it
    seats = asyncio.Semaphore(max(AT_ONCE, *(reward.concurrency or 0 for reward in rewards), 0))
    speakers = list(dict.fromkeys(one.agent for one in among or trajectories))
    episodes = by_episode(trajectories)
    answered = [answering(episode, main) for episode in episodes]
    for reward in rewards:
        if reward.compares:
            answered = await _compared(answered, reward, seats, held)
    scored = (
        _scored(one, episode, rewards, speakers, seats, held)
        for one, episode in zip(answered, episodes, strict=True)
    )
    gathered = await asyncio.gather(*scored)
    numbers = episode_numbers(trajectories)
    scores = [iter(of_episode) for of_episode in gathered]
    return [next(scores[number]) for number in numbers]


def score_here(
    trajectories: Sequence[Trajectory],
    rewards: Mapping[Reward, float],
    main: str,
    among: Sequence[Trajectory] = (),
) -> list[Scored]:
    """Call `score` on the event loop of this process, and return the scores.

    See `score` for the parameters. If a reward blocks the loop for too long, the episode that the
    reward was scoring is Unscored.
    """
    return without_held_calls(lambda held: run(score(trajectories, rewards, main, among, held)))


async def _compared(
    answered: Sequence[Trajectory], reward: Reward, seats: asyncio.Semaphore, held: HeldCalls
) -> list[Trajectory]:
    """Compute a reward that compares the episodes of a problem.

    Return the trajectories with the scores added to their field `observed`.
    """
    groups: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    # sorted by the index of the episode, because groups must not depend on the order of `answered`
    for number in sorted(range(len(answered)), key=lambda number: answered[number].chain):
        one = answered[number]
        if one.ending is not Ending.FAILED:
            groups[one.problem.id, one.role].append(number)

    async def compare(numbers: Sequence[int]) -> list[Grade]:
        async with seats:
            return await reward.of_records([answered[number] for number in numbers], held)

    compared = list(answered)
    for numbers, scores in zip(
        groups.values(), await asyncio.gather(*map(compare, groups.values())), strict=True
    ):
        for number, score in zip(numbers, scores, strict=True):
            observed = {**answered[number].observed, reward.name: score}
            compared[number] = replace(answered[number], observed=observed)
    return compared


async def _scored(
    answered: Trajectory,
    episode: Sequence[Trajectory],
    rewards: Mapping[Reward, float],
    speakers: Sequence[str],
    seats: asyncio.Semaphore,
    held: HeldCalls,
) -> list[Scored]:
    """Score an episode. Return the scores of its trajectories, in the order of `episode`.

    `answered` is the trajectory with the answer of the episode, chosen by the function `answering`.
    `speakers` has the names of the speakers of all episodes.
    """
    if answered.ending is Ending.FAILED:
        reason = Unscored(f"episode failed: {answered.error}")
        return [Scored(trajectory.id, {}, (), reason) for trajectory in episode]
    scores: dict[str, tuple[float, Grade]] = {}
    async with seats:
        for reward, weight in rewards.items():
            score = await reward.of_record(answered, held, episode)
            if isinstance(score, Score) and (unknown := _unknown(score, speakers)):
                roles = dict.fromkeys(instance(agent)[0] for agent in speakers)
                score = Unscored(
                    f"{reward.name}: by_speaker has the key {unknown[0]!r}, but the speakers of "
                    f"these episodes are {', '.join(roles)}"
                )
            scores[reward.name] = weight, score
    return [_held(scores, trajectory, trajectory.agent == answered.agent) for trajectory in episode]


def _held(
    scores: Mapping[str, tuple[float, Grade]], trajectory: Trajectory, answered: bool
) -> Scored:
    """Return the scores of one trajectory, given the scores of its episode.

    If a reward has a separate value for the trajectory's speaker, this value is used. `answered` is
    True for the trajectory with the answer. Only this trajectory gets turn rewards.
    """
    own = dict(scores)
    for name, (weight, score) in scores.items():
        if isinstance(score, Score):
            value = own_value(score.by_speaker, trajectory.agent, score.value)
            per_turn = score.per_turn if answered else ()
            own[name] = weight, replace(score, value=value, per_turn=per_turn)
    return replace(combined(trajectory.id, own), rewards=_by_name(scores))


def _unknown(score: Score, speakers: Iterable[str]) -> list[str]:
    """Return the names in `Score.by_speaker` that do not match any speaker in `speakers`.

    A name is a role, such as `searcher`, or one speaker with this role, such as `searcher/2`.
    """
    pairs = {instance(agent) for agent in speakers}
    names = {role for role, _ in pairs} | {f"{role}/{number}" for role, number in pairs}
    return [name for name in score.by_speaker if name not in names]


def combined(trajectory_id: str, by_name: Mapping[str, tuple[float, Grade]]) -> Scored:
    """Return the weighted sum of a trajectory's rewards.

    `by_name` has the weight and the score of each reward: `combined("9f2c", {"exact": (1.0,
    Score(1.0))})`. The result is Unscored if one of these scores is Unscored, or if the sum is too
    large or NaN.
    """
    scores = {
        name: (weight, score)
        for name, (weight, score) in by_name.items()
        if isinstance(score, Score)
    }
    rewards = _by_name(by_name)
    if missing := [score.reason for _, score in by_name.values() if isinstance(score, Unscored)]:
        return Scored(trajectory_id, rewards, (), Unscored("; ".join(missing)))
    turns = [
        [weight * value for value in score.per_turn]
        for weight, score in scores.values()
        if score.per_turn
    ]
    by_turn = tuple(_sum(column) for column in zip(*turns, strict=True))
    total = _sum([weight * score.value for weight, score in scores.values()])
    if all(map(is_usable, (total, *by_turn))):
        return Scored(trajectory_id, rewards, by_turn, total)
    terms = " + ".join(
        f"{weight:g} x {score.value:g} ({name})" for name, (weight, score) in scores.items()
    )
    reason = (
        f"the weighted sum of the rewards ({terms}), or of the rewards of one turn, is not {USABLE}"
    )
    return Scored(trajectory_id, rewards, (), Unscored(reason))


def _by_name(scores: Mapping[str, tuple[float, Grade]]) -> dict[str, float]:
    """Return the unweighted rewards by name. The function `score` documents the names."""
    rewards: dict[str, float] = {}
    for name, (_, score) in scores.items():
        if isinstance(score, Score):
            parts = {f"{name}/{part}": value for part, value in score.parts.items()}
            apart = {apart_name(name, who): value for who, value in score.by_speaker.items()}
            rewards |= {name: score.value, **parts, **apart}
    return rewards


def _sum(values: Sequence[float]) -> float:
    try:
        # the exact sum does not depend on the order of the rewards
        return math.fsum(values)
    except (OverflowError, ValueError):  # the values are infinite, perhaps with both signs
        return math.nan
