"""Specs of forks, i.e. of episodes that continue another episode (their parent) from some point.

The module also finds the turns that forks share with their parents.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from operator import attrgetter, eq

from agentfly_core.records.timing import Timing
from agentfly_core.records.trajectory import Branch, Trajectory
from agentfly_core.rollout.history.forks import ForkOrigin
from agentfly_core.rollout.rules import EpisodeSpec, ForkedSpec


@dataclass(frozen=True, slots=True)
class PlayedEpisode:
    """An episode that has ended.

    - `record`: its trajectories
    - `timing`: its recorded times
    - `children`: the points of the episode from which its forks (new episodes) continue
    """

    spec: EpisodeSpec
    record: list[Trajectory]
    timing: Timing
    children: Sequence[ForkOrigin] = ()


def following(
    played: Sequence[PlayedEpisode], numbers: Counter[tuple[str, int]]
) -> list[EpisodeSpec]:
    """Return the specs of the episodes to play after the episodes `played`.

    These are the forks of the episodes, and spare episodes. A spare episode (`EpisodeSpec.spares`)
    is planned for the same problem. Each fork of an episode with spares is played instead of one
    spare. If an episode did not fork, all its spares are played.

    `numbers` counts the forks that agents made with `Episode.fork`, and is updated. A key is the
    pair of a problem's id and the index of the episode that was forked first. Example: with 8
    episodes for each problem, the forks of episode 3 and of its forks get the indices 11, 19, 27,
    ...
    """
    specs = list[EpisodeSpec]()
    # sorted, because the children's numbers must not depend on which parent ended first
    for parent in sorted(played, key=attrgetter("spec.problem.id", "spec.chain")):
        spec = parent.spec
        if spec.spares:
            specs += _heirs(spec, parent.children)
            continue
        first = spec.problem.id, spec.chain % spec.chains
        for origin in parent.children:
            numbers[first] += 1
            specs.append(ForkedSpec.of(spec, origin, first[1] + spec.chains * numbers[first]))
    return specs


def _heirs(spec: EpisodeSpec, children: Sequence[ForkOrigin]) -> list[EpisodeSpec]:
    """Return the spec of each fork. Without forks, return all spare episodes.

    Spare episodes (`spec.spares`) are planned for the same problem. Each fork is played instead of
    one spare. The remaining spares are divided among the forks, so that a fork can fork again.
    """
    if not children:
        return [replace(one, blamed=spec.blamed, suspects=spec.suspects) for one in spec.spares]
    left, count = spec.spares[len(children) :], len(children)
    return [
        ForkedSpec.of(spec, origin, spare.chain, left[n::count])
        for n, (origin, spare) in enumerate(zip(children, spec.spares, strict=False))
    ]


def with_branches(
    played: Sequence[PlayedEpisode], trajectories: Sequence[Trajectory]
) -> list[Trajectory]:
    """Return all trajectories. In trajectories of forks, the field `branch` is set.

    A fork is an episode that continues another episode, its parent. `branch` contains the id of the
    parent's trajectory, and the number of turns that the parent and the fork have in common.
    Without common turns, `branch` is not set.
    """
    by_id = {one.id: one for one in trajectories}
    forks = {one.id: each.spec for each in played for one in each.record}
    return [_branched(one, forks[one.id], by_id) for one in trajectories]


def _branched(one: Trajectory, spec: EpisodeSpec, by_id: Mapping[str, Trajectory]) -> Trajectory:
    if not isinstance(spec, ForkedSpec):
        return one
    parent = by_id.get(spec.parent.trajectory(one.agent))
    if parent is None:
        return one
    # limited, because an equal reply may be sampled again after the fork
    most = sum(reply.speaker == one.agent for reply in spec.origin.path.replies.values())
    shared = len([*takewhile(bool, map(eq, parent.turns[:most], one.turns))])
    return replace(one, branch=Branch(parent.id, shared)) if shared else one
