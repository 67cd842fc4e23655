"""Rejection sampling from the stored episodes of a run (RFT, arXiv 2308.01825).

The best episodes become demonstrations.
"""

from collections.abc import Container, Iterable, Iterator, Sequence
from pathlib import Path

from agentfly_core.config.import_path import construct
from agentfly_core.config.parts import WarmStart
from agentfly_core.datasets.rejection_sampling import RejectionSampling
from agentfly_core.experiment.run_layout import rollouts, step_layout
from agentfly_core.records.parquet import (
    EPISODES,
    SCORES,
    read_scores,
    read_trajectories,
    write_trajectories,
)
from agentfly_core.records.speakers import by_episode
from agentfly_core.records.trajectory import Scored, Trajectory
from agentfly_core.store.artifact import Pointer
from agentfly_core.store.store import Store


def artifacts(store: Store, run: str, last: int) -> tuple[Pointer, ...]:
    """Return the artifacts with the scores and the episodes of steps 1 to `last` of a run.

    The scores of a step come before its episodes. Raises ValueError if a step is not scored.
    """
    pointers: list[Pointer] = []
    for step in range(1, last + 1):
        here = step_layout(store, run, step)
        if (scored := store.get(here.scored)) is None:
            raise ValueError(f"The run {run!r} has not scored step {step} in {store.uri}.")
        pointers += [scored, *rollouts(scored)]
    return tuple(pointers)


def stored(
    store: Store, episodes: Sequence[Pointer], problems: Container[str]
) -> Iterator[tuple[Trajectory, Scored]]:
    """Yield stored episodes with their scores.

    `episodes` is the result of `artifacts`. Only episodes on the problem ids in `problems` are
    yielded, because a problem that another experiment trained may be held out in this experiment.
    """
    scores: dict[str, Scored] = {}
    for artifact in episodes:
        folder = store.open(artifact)
        # the scores of a step come before its episodes, see `artifacts`
        if (folder / SCORES).is_file():
            scores = {score.trajectory_id: score for score in read_scores(folder / SCORES)}
        else:
            played = read_trajectories(folder / EPISODES)
            yield from ((t, scores[t.id]) for t in played if t.problem.id in problems)


def choose(
    settings: WarmStart, played: Iterable[tuple[Trajectory, Scored]], folder: Path
) -> dict[str, float]:
    """Choose successful episodes, at most as many as the warm start needs, and write them to
    `folder`.

    Returns metrics with the number of episodes. Raises ValueError if no episode was successful.
    """
    successes = construct(RejectionSampling, settings.settings)
    if not (chosen := successes.among(played, settings.episodes)):
        raise ValueError(
            f"{settings.demonstrations}: no episode on this experiment's training problems has a "
            f"reward of {successes.threshold:g} or more. Lower warm_start.settings.threshold, or "
            "name another run."
        )
    write_trajectories(folder / EPISODES, chosen)
    return {"demonstrations": float(len(by_episode(chosen)))}
