"""Read the trajectories and scores of an update into a batch, and divide the batch into
mini-batches.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from agentfly_core.records.parquet import read_scores, read_trajectories
from agentfly_core.records.speakers import (
    Earned,
    any_spread,
    by_episode,
    earned_by_speaker,
    group_of,
)
from agentfly_core.records.trajectory import Ending, Scored, Trajectory, Unscored
from agentfly_core.rl.batch import RolloutBatch, pack
from agentfly_core.rl.outcomes import Outcomes, earned, outcomes
from agentfly_core.system.formats import hashing
from agentfly_core.system.formats.text import counted
from agentfly_core.training.job import UpdateJob


@dataclass(frozen=True)
class UpdateData:
    """The data of an update.

    - `batch`: the tokens of the trajectories, packed into rows
    - `outcomes`: the rewards and groups of the trajectories
    - `trajectories`: the number of trajectories in the batch
    - `unscored`: the number of trajectories that were left out, because they have no reward
    """

    batch: RolloutBatch
    outcomes: Outcomes
    trajectories: int
    unscored: int


def read_update_data(job: UpdateJob, drop_equal: bool = False) -> UpdateData:
    """Read the files of an update job.

    Trajectories without a reward, trajectories of untrained speakers and failed demonstrations are
    left out. Greedy episodes are used only as baselines. With `drop_equal`, a problem is left
    out if the rewards of its episodes are equal. Raises ValueError if the file of scores has no row
    for a trajectory.
    """
    stored = [t for path in job.rollouts for t in read_trajectories(Path(path))]
    own = [t for t in stored if not t.policy]
    if job.scores:
        by_id = {score.trajectory_id: score for score in read_scores(Path(job.scores))}
        if missing := [t.id for t in own if t.id not in by_id]:
            raise ValueError(
                f"{job.scores} lacks the scores of {counted(len(missing), 'trajectory')}, such as "
                f"{missing[0]}."
            )
        scores = {
            name: score for name, score in by_id.items() if not isinstance(score.reward, Unscored)
        }
    else:
        demonstrated = (t.id for t in own if t.ending is not Ending.FAILED)
        scores = {name: Scored(name, {}, (), 0.0) for name in demonstrated}
    greedy = {
        group_of(t, scores[t.id]): earned(scores[t.id])
        for t in own
        if t.role == "baseline" and t.id in scores
    }
    played = [t for t in own if t.role != "baseline"]
    kept = scored = [t for t in played if t.id in scores]
    if drop_equal:
        kept = _with_spread(scored, scores)
    batch = pack(kept, job.temperature)
    if not job.scores:  # demonstrations may have been sampled at another temperature
        batch = replace(batch, temperature=torch.full_like(batch.temperature, job.temperature))
    left_out = [t for t in played if t.id not in scores]
    rewarded = outcomes(kept, [scores[t.id] for t in kept], greedy, job.rewards, batch, left_out)
    return UpdateData(batch, rewarded, len(kept), len(played) - len(scored))


def _with_spread(
    trajectories: Sequence[Trajectory], scores: Mapping[str, Scored]
) -> list[Trajectory]:
    """Leave out the trajectories of a problem if all its episodes have the same reward.

    If episodes have several speakers, a problem is kept if at least one speaker or role (see
    `earned_by_speaker`) has different rewards in different episodes.
    """
    problems: defaultdict[str, list[Earned]] = defaultdict(list)
    for episode in by_episode(trajectories):
        if rewards := earned_by_speaker(episode, scores):
            problems[episode[0].problem.id].append(rewards)
    spread = {problem for problem, episodes in problems.items() if any_spread(episodes)}
    return [trajectory for trajectory in trajectories if trajectory.problem.id in spread]


def mini_batches(job: UpdateJob, trajectories: Tensor) -> list[Tensor]:
    """Divide trajectories among the optimizer steps of an update.

    `trajectories` has the indices of the trajectories. The result has the indices for each
    optimizer step. Each epoch shuffles the trajectories with a seed that is derived from the job's
    seed. An optimizer step has at most `job.batch` trajectories. If `job.batch` is None, an epoch
    has `update.mini_batches` optimizer steps.
    """
    if not len(trajectories):
        return []
    steps = min(job.update.mini_batches, len(trajectories))
    if job.batch:
        steps = math.ceil(len(trajectories) / job.batch)
    batches: list[Tensor] = []
    for epoch in range(job.update.epochs):
        generator = torch.Generator().manual_seed(hashing.seed(job.seed, epoch))
        # each epoch has its own generator, so the order is the same on every rank and after a
        # resume, although the generator is not stored
        shuffled = trajectories[torch.randperm(len(trajectories), generator=generator)]
        batches += shuffled.tensor_split(steps)
    return batches
