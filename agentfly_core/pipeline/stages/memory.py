"""Make the memory of the policy after a step: a folder that agents read during episodes."""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from agentfly_core.experiment.keys import StageKeys
from agentfly_core.experiment.memory import FILES, memory_folder
from agentfly_core.experiment.task import remember_of
from agentfly_core.pipeline.produce import produce
from agentfly_core.records.trajectory import Scored, Trajectory
from agentfly_core.runs.episodes import scored_in
from agentfly_core.runs.run import Run
from agentfly_core.store.artifact import Artifact, Pointer
from agentfly_core.store.store import Store
from agentfly_core.system.formats import hashing


def remember(run: Run, remembers: str, policy: Pointer, scored: Artifact, step: int) -> Artifact:
    """Publish the new memory, a folder that agents read during episodes (`Episode.memory`).

    The memory belongs to the policy after this step. `remembers` is the import path of a function
    (the setting agent.remembers). The function makes the new memory from the old memory and the
    training episodes of this step. The old memory belongs to `policy`, the policy before this step.
    """
    settings, store = run.settings, run.store
    function, before = remember_of(remembers), run.experiment.memory_of(policy)
    target = StageKeys(settings).memory(run.name, before, scored, step)

    def make(folder: Path) -> Mapping[str, float]:
        trajectories, scores = training_episodes(store, scored)
        seed = hashing.seed(settings.seed, "memory", *settings.seeds_of(step)[1:])
        (folder / FILES).mkdir()
        with TemporaryDirectory() as nothing:
            earlier = memory_folder(store, before) if before else Path(nothing)
            function(earlier, trajectories, scores, seed, folder / FILES)
        return {}

    return produce(store, target, make)


def training_episodes(store: Store, scored: Artifact) -> tuple[list[Trajectory], list[Scored]]:
    """Read the training trajectories of a step, and their scores.

    Both are sorted by problem and by index of the episode.
    """
    training = [pair for pair in scored_in(store, scored) if pair[0].role == "train"]
    # sorted, because episodes end in any order, but equal steps must give equal memories
    training.sort(key=lambda pair: (pair[0].problem.id, pair[0].chain))
    return [t for t, _ in training], [score for _, score in training]
