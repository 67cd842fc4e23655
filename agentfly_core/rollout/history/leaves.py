"""Number the episodes that continue from forks, and find the turns that they share with their
parents.
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
    """An episode's trajectories (`record`) and times, and the points from which its forks continue
    (`children`).
    """

    spec: EpisodeSpec
    record: list[Trajectory]
    timing: Timing
    children: Sequence[ForkOrigin] = ()


def following(
    played: Sequence[PlayedEpisode], numbers: Counter[tuple[str, int]]
) -> list[EpisodeSpec]:
    """Return the episodes to play after these: their forks, and the spare episodes that no fork has
    replaced.

    `numbers` counts the forks that agents made with `Episode.fork`, by problem and number of the
    first episode (`chain`). With 8 episodes for each problem, episode 3's forks and their forks get
    the numbers 11, 19, 27, ...
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
    """Return one episode for each fork. It replaces a spare (see `EpisodeSpec`) and gets a share of
    the remaining spares. Without forks, return all spares.
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
    """Return the trajectories, with `branch` set where turns are shared with the parent episode."""
    by_id = {one.id: one for one in trajectories}
    forks = {one.id: each.spec for each in played for one in each.record}
    return [_branched(one, forks[one.id], by_id) for one in trajectories]


def _branched(one: Trajectory, spec: EpisodeSpec, by_id: Mapping[str, Trajectory]) -> Trajectory:
    if not isinstance(spec, ForkedSpec):
        return one
    parent = by_id.get(spec.parent.trajectory(one.agent))
    if parent is None:
        return one
    # the same reply may also be sampled again after the fork
    most = sum(reply.speaker == one.agent for reply in spec.origin.path.replies.values())
    shared = len([*takewhile(bool, map(eq, parent.turns[:most], one.turns))])
    return replace(one, branch=Branch(parent.id, shared)) if shared else one
