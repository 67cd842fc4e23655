"""Experiments that are only read, and what the summary of a run says."""

from agentfly_core.config.experiment import Science
from agentfly_core.config.site import Site
from agentfly_core.experiment.context import ExperimentContext, resolve
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


def context(tmp_path, **settings):
    """The context of an experiment with these settings, with its store in a folder of the test."""
    data = {"use": "tests.support.problems:clean", "train": 8, "test": 4}
    usual = {"model": "nano:calculator", "data": data, "rewards": REWARDS, "steps": 2}
    science = Science(**{**usual, **settings})
    return ExperimentContext(
        "tiny", resolve(science), {}, Site(), Store.at(str(tmp_path / "store"), tmp_path / "cache")
    )
