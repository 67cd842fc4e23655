"""The leaves of forked episodes: their numbers, and the turns that they share."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from operator import attrgetter, eq

from agentfly_core.records.timing import Timing
from agentfly_core.records.trajectory import Branch, Trajectory
from agentfly_core.rollout.history.forks import ForkOrigin
from agentfly_core.rollout.rules import EpisodeSpec, ForkedSpec


@dataclass(frozen=True, slots=True)
class PlayedEpisode:
    """Trajectories and times of an episode, and the starts of its children."""

    spec: EpisodeSpec
    record: list[Trajectory]
    timing: Timing
    children: Sequence[ForkOrigin] = ()


def forked(played: Sequence[PlayedEpisode], numbers: Counter[tuple[str, int]]) -> list[EpisodeSpec]:
    """The children of played episodes; `numbers` counts them by problem and first chain.

    In a step of 8 chains the children of chain 3, and theirs, have the chains 11, 19, 27, ...
    """
    specs = list[EpisodeSpec]()
    # sorted: numbers of children must not depend on which parent ended first
    for parent in sorted(played, key=attrgetter("spec.problem.id", "spec.chain")):
        spec = parent.spec
        first = spec.problem.id, spec.chain % spec.chains
        for origin in parent.children:
            numbers[first] += 1
            specs.append(ForkedSpec.of(spec, origin, first[1] + spec.chains * numbers[first]))
    return specs


def with_branches(
    played: Sequence[PlayedEpisode], trajectories: Sequence[Trajectory]
) -> list[Trajectory]:
    """The trajectories, with the `branch` of those that share turns with their parent."""
    by_id = {one.id: one for one in trajectories}
    parents = {
        one.id: by_id.get(each.spec.parent.trajectory(one.agent))
        for each in played
        if isinstance(each.spec, ForkedSpec)
        for one in each.record
    }
    return [_branched(one, parents.get(one.id)) for one in trajectories]


def _branched(one: Trajectory, parent: Trajectory | None) -> Trajectory:
    if parent is None:
        return one
    shared = len([*takewhile(bool, map(eq, parent.turns, one.turns))])
    return replace(one, branch=Branch(parent.id, shared)) if shared else one
