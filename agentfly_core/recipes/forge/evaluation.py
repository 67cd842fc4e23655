"""Run the experiment of the recipe forge, and write the best functions to a file."""

from collections.abc import Mapping
from pathlib import Path

from agentfly_core import ArtifactKey, Experiment, produce, train
from agentfly_core.recipes.forge.function_sets import digest_of, write
from agentfly_core.recipes.forge.state import State


def forge(experiment: Experiment, folder: str = "functions") -> list[dict[str, float | str]]:
    """Start or resume the experiment. Write its best functions to a file and return all trials.

    A model writes functions, which it can call as tools. A trial is a step that tests a set of
    functions. The file is `folder/DIGEST.json`. The functions are also stored as an artifact. The
    result has a row for each trial:

        [{"digest": "4f53...", "functions": 2, "train": 0.6, "validation": 0.6, "accepted": 1}]
    """
    summary, store = train(experiment), experiment.store
    uri = f"runs/{summary['run']}/steps/{summary['steps']:06d}/memory"
    state = State.read(store.open(store.artifact(uri)) / "files")

    def make(empty: Path) -> Mapping[str, float]:
        write(state.best, empty)
        return {}

    digest = write(state.best, Path(folder))
    produce(store, ArtifactKey(f"artifacts/functions/{digest[:16]}", "functions", digest, {}), make)
    return [
        {
            "digest": digest_of(trial.functions),
            "functions": len(trial.functions),
            "train": trial.train,
            "validation": trial.validation,
            "accepted": int(trial.accepted),
        }
        for trial in state.trials
    ]
