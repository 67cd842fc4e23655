"""Read-only experiments and the summary of a run."""

from pathlib import Path

from agentfly_core.config.experiment import Settings
from agentfly_core.config.site import Site
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.store.store import Store

TINY = """
model: nano:calculator
data: {use: "agentfly_core.datasets.arithmetic:arithmetic", train: 64, test: 16}
rewards: {"agentfly_core.rewards.exact:exact": 1.0}
update: {learning_rate: 3.0e-4}
steps: 2
"""
REWARDS = {"agentfly_core.rewards.exact:exact": 1.0}
SUMMARY = {
    "run": "quickstart-1f2e3d4c",
    "experiment": "quickstart",
    "steps": 15,
    "success_before": 0.55,
    "success_after": 0.912,
    "interval_before": [0.519, 0.581],
    "interval_after": [0.893, 0.928],
    "seconds": {"evaluate": 30.0, "prepare": 1.24, "rollout": 60.0, "warm_start": 105.0},
}


def experiment_of(settings, store=None):
    """An experiment with these settings; its store is empty, unless one is given."""
    store = store or Store.at("/nowhere", Path("/nowhere"))
    return Experiment.of("tiny", settings, {}, Site(), store)


def experiment(tmp_path, **changes):
    """An experiment with these settings, with its store in a folder of the test."""
    data = {"use": "tests.support.problems:clean", "train": 8, "test": 4}
    usual = {"model": "nano:calculator", "data": data, "rewards": REWARDS, "steps": 2}
    settings = Settings(**{**usual, **changes})
    return Experiment.of(
        "tiny", settings, {}, Site(), Store.at(str(tmp_path / "store"), tmp_path / "cache")
    )
