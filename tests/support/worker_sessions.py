"""Sessions with workers that play shards of an unruly agent, see `unruly_agent`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agentfly_core.config.experiment import Settings
from agentfly_core.config.site import Site
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.pipeline import inputs
from agentfly_core.pipeline.services import rollout_services
from agentfly_core.pipeline.workers.job import RolloutJob
from agentfly_core.records.parquet import EPISODES, read_trajectories
from agentfly_core.records.trajectory import Problem, Trajectory
from agentfly_core.rollout.rules import EpisodeSpec
from agentfly_core.store.artifact import ArtifactKey
from agentfly_core.store.store import Store
from agentfly_core.system.progress import Progress

HERE = "tests.support.unruly_agent"
SHARD, AFFECTED = 6, 2
WITHOUT_ENVIRONMENT = {
    "model": "nano:calculator",
    "template": {"use": "agentfly_core.inference.templates.chatml:Hermes", "show_tools": False},
    "data": {"use": "tests.support.problems:clean", "train": 8, "test": 4},
    "agent": {"use": f"{HERE}:agent", "max_turns": 2, "max_tokens": 8, "max_model_len": 160},
    "tools": [f"{HERE}:calm", f"{HERE}:bend", f"{HERE}:press"],
    "rewards": {f"{HERE}:even": 1.0},
    "gates": {"failed": 1.0, "unscored": 1.0},
    "steps": 1,
}
WITH_ENVIRONMENT = {
    "tools": [f"{HERE}:calm", f"{HERE}:look"],
    "rewards": {f"{HERE}:even": 1.0, f"{HERE}:judge": 1.0},
    "environments": {f"{HERE}:Unruly": SHARD},
    "evaluate": {"goal": f"{HERE}:even"},
}
Play = Callable[..., list[Trajectory]]


@contextmanager
def session(folder: Path, workers: int = 1, **changes: Any) -> Iterator[Play]:
    """Play shards in warm workers: `play("bend", "sleeps")` has one episode that misbehaves."""
    site = Site(sampler="transformers", threads=1, workers=workers)
    store = Store.at(str(folder), folder / "cache")
    settings = Settings.model_validate({**WITHOUT_ENVIRONMENT, **changes})
    experiment = Experiment.of("unruly", settings, {}, site, store)
    policy = inputs.base_model(experiment)

    def play(place: str = "no", deed: str = "deed") -> list[Trajectory]:
        target = ArtifactKey(f"runs/unruly/{place}-{deed}", "rollout", f"{place}-{deed}", {})
        job = RolloutJob(target, policy, 0, shard(place, deed), Progress("rollout", 1, 0, SHARD))
        return read_trajectories(store.open(player.do(job)) / EPISODES)

    with rollout_services(experiment, policy, str(folder), folder / "logs") as player:
        yield play


def shard(place: str, deed: str) -> tuple[EpisodeSpec, ...]:
    facts = {AFFECTED: {"place": place, "deed": deed}}
    problems = [Problem(f"p{n}", f"What is {n}?", facts.get(n, {})) for n in range(SHARD)]
    return tuple(
        EpisodeSpec(problem, 0, 1, "train", 1.0, seed) for seed, problem in enumerate(problems)
    )
