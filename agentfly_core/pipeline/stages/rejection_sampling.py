"""Rejection sampling from the stored episodes of a run (RFT, arXiv 2308.01825).

The best episodes become demonstrations.
"""

from collections.abc import Container, Iterable, Iterator
from pathlib import Path

from agentfly_core.config.import_path import construct
from agentfly_core.config.parts import WarmStart
from agentfly_core.datasets.rejection_sampling import RejectionSampling
from agentfly_core.experiment.run_layout import step_layout
from agentfly_core.records.parquet import EPISODES, write_trajectories
from agentfly_core.records.speakers import by_episode
from agentfly_core.records.trajectory import Scored, Trajectory
from agentfly_core.runs.episodes import scored_in
from agentfly_core.store.artifact import Artifact
from agentfly_core.store.store import Store


def scored_steps(store: Store, run: str, last: int) -> list[Artifact]:
    """Return the artifacts with the scores of steps 1 to `last` of a run.

    Raises ValueError if a step is not scored.
    """
    steps = list[Artifact]()
    for step in range(1, last + 1):
        if (scored := store.get(step_layout(store, run, step).scored)) is None:
            raise ValueError(
                f"warm_start.demonstrations: the run {run!r} has no scores of step {step} in "
                f"{store.uri}. Name an earlier step, or another run."
            )
        steps.append(scored)
    return steps


def stored(
    store: Store, steps: Iterable[Artifact], problems: Container[str]
) -> Iterator[tuple[Trajectory, Scored]]:
    """Yield the stored episodes of a run's steps, with their scores.

    `steps` is the result of `scored_steps`. `problems` contains the ids of the training problems of
    the experiment that uses the episodes. Episodes of other problems are left out, because this
    experiment may hold these problems out.
    """
    for scored in steps:
        pairs = scored_in(store, scored)
        yield from ((t, score) for t, score in pairs if t.problem.id in problems)


def choose(
    settings: WarmStart, played: Iterable[tuple[Trajectory, Scored]], folder: Path
) -> dict[str, float]:
    """Choose at most `warm_start.episodes` successful episodes, and write them to `folder`.

    Returns the metric `demonstrations`, the number of chosen episodes. Raises ValueError if no
    episode was successful.
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
