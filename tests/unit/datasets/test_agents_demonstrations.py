"""Demonstrations of the agents that fold and that cooperate, played as their experiments say."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from agentfly_core.agents.folding import Folding
from agentfly_core.agents.tool_loop import tool_loop
from agentfly_core.config import loading
from agentfly_core.config.site import Site
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.policy_path import policy_at
from agentfly_core.inference.scripted import Scripted
from agentfly_core.pipeline import demonstrations, inputs, playing
from agentfly_core.records.dataset import split
from agentfly_core.records.speakers import answering, by_episode
from agentfly_core.records.trajectory import Ending, Problem, Score, ToolCall, Trajectory
from agentfly_core.rewards.exact import exact
from agentfly_core.rl.batch import pack
from agentfly_core.rollout.episode import RolloutSpec
from agentfly_core.store.store import Store
from agentfly_core.testing.episodes import episode_specs, play_all
from tests.support.project import ROOT

pytestmark = pytest.mark.slow


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


@pytest.fixture(scope="module")
def folding(tmp_path_factory: pytest.TempPathFactory) -> Played:
    return Played("folding", tmp_path_factory.mktemp("folding"))


@pytest.fixture(scope="module")
def cooperating(tmp_path_factory: pytest.TempPathFactory) -> Played:
    return Played("planner-executor", tmp_path_factory.mktemp("cooperating"))


async def scores(episodes: Sequence[Sequence[Trajectory]]) -> set[float]:
    results = [await exact.score(answering(episode), {}) for episode in episodes]
    return {score.value for score in results if isinstance(score, Score)}


@pytest.mark.parametrize("name", ["folding", "cooperating"])
async def test_unspoilt_demonstrations_are_all_right(
    name: str, request: pytest.FixtureRequest
) -> None:
    played: Played = request.getfixturevalue(name)
    assert await scores(await played.episodes(0.0)) == {1.0}


@pytest.mark.parametrize("name", ["folding", "cooperating"])
async def test_spoilt_demonstrations_are_wrong_but_well_formed(
    name: str, request: pytest.FixtureRequest
) -> None:
    played: Played = request.getfixturevalue(name)
    episodes = await played.episodes(1.0)
    assert await scores(episodes) == {0.0}
    for trajectory in (one for episode in episodes for one in episode):
        assert trajectory.ending is Ending.NO_TOOL_CALLS
        assert not any(observation.error for observation in trajectory.observations)


async def test_an_unfolded_ledger_takes_twice_the_context_limit(
    folding: Played,
) -> None:
    endless = replace(folding.spec, agent=tool_loop, max_model_len=sys.maxsize)
    unfolded = [episode for (episode,) in await folding.episodes(0.0, endless)]
    assert {episode.turns[-1].context for episode in unfolded} == {0}
    assert 2 * folding.max_model_len <= pack(unfolded).tokens.shape[1]
    cut = await folding.episodes(0.0, replace(folding.spec, agent=tool_loop))
    assert await scores(cut) == {0.0}
    assert {episode.ending for (episode,) in cut} == {Ending.MAX_MODEL_LEN}


@pytest.mark.parametrize("budget", [1, 10_000])
async def test_a_ledger_can_be_folded_after_any_page(folding: Played, budget: int) -> None:
    agent = Folding(budget)
    roomy = replace(folding.spec, agent=agent, max_turns=20, max_model_len=1000)
    assert await scores(await folding.episodes(0.0, roomy)) == {1.0}


async def test_planner_and_executor_are_both_spoilt(cooperating: Played) -> None:
    async def first_steps(spoilt: float) -> list[list[str]]:
        """The first step of the planner and the expression of the executor, by problem."""
        steps = []
        for episode in await cooperating.episodes(spoilt):
            speakers = {one.agent: one.turns[0].reply for one in episode if one.turns}
            (call,) = speakers["executor"].calls
            assert isinstance(call, ToolCall)
            steps.append([speakers["planner"].content, str(call.arguments["expression"])])
        return steps

    pairs = [*zip(await first_steps(0.0), await first_steps(1.0), strict=True)]
    planner_wrong = [right[0] != spoilt[0] for right, spoilt in pairs]
    executor_wrong = [right[0] == spoilt[0] and right != spoilt for right, spoilt in pairs]
    assert sum(planner_wrong) >= 2 and sum(executor_wrong) >= 2


def test_calls_of_the_executor_are_few_tokens(
    cooperating: Played,
) -> None:
    call = '<tool_call>\n{"name": "calculator", "arguments": {"expression": "41+58"}}\n</tool_call>'
    assert len(cooperating.tokenizer.tokenize(call)) == 7
