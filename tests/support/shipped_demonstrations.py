"""Demonstrations of a shipped experiment, played with its settings."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from agentfly_core.config import loading
from agentfly_core.config.site import Site
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.policy_path import policy_at
from agentfly_core.inference.scripted import Scripted
from agentfly_core.pipeline import demonstrations, inputs, playing
from agentfly_core.records.dataset import split
from agentfly_core.records.speakers import answering, by_episode
from agentfly_core.records.trajectory import Problem, Score, Trajectory
from agentfly_core.rewards.exact import exact
from agentfly_core.rollout.episode import RolloutSpec
from agentfly_core.store.store import Store
from agentfly_core.testing.episodes import episode_specs, play_all
from tests.support.project import ROOT


class Played:
    """An experiment with few problems, and its demonstrations."""

    def __init__(self, name: str, folder: Path) -> None:
        small = ["data.train=100", "data.validation=0", "data.test=30"]
        settings = loading.read(str(ROOT / "conf" / f"{name}.yaml"), small).settings
        store = Store.at(str(folder / "store"), folder / "cache")
        experiment = Experiment.of(name, settings, {}, Site(), store)
        data = inputs.dataset(experiment)
        self.problems: Sequence[Problem] = split(store.open(data), "train")[:40]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(demonstrations, "HEARD", 64)  # an eighth of the time, the same form
            self.tokenizer, _ = inputs.tokenizer(experiment)
        self.spec = playing.rollout_spec(experiment.whole, experiment.mixture, self.tokenizer)
        assert settings.warm_start is not None
        self.shown = partial(policy_at, settings.warm_start.demonstrations)
        self.max_model_len = settings.agent.max_model_len

    async def episodes(
        self, spoilt: float, spec: RolloutSpec | None = None
    ) -> list[list[Trajectory]]:
        """The trajectories of one episode per problem; `spoilt` is the share of wrong ones."""
        policy = self.shown({"spoilt": spoilt}, self.problems, 0)
        encode = partial(self.tokenizer.encode, add_special_tokens=False)
        sampler = Scripted(encode, self.spec.template.stop_tokens[0], policy)
        trajectories, *_ = await play_all(episode_specs(*self.problems), spec or self.spec, sampler)
        return by_episode(trajectories)


async def scores(episodes: Sequence[Sequence[Trajectory]]) -> set[float]:
    results = [await exact.score(answering(episode), {}) for episode in episodes]
    return {score.value for score in results if isinstance(score, Score)}
