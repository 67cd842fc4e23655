"""The site limits how many programs run at the same time."""

import asyncio
import sys
from dataclasses import replace
from typing import Any

import pytest

from agentfly_core.config.site import Site
from agentfly_core.pipeline import inputs
from agentfly_core.pipeline.demonstrations import DemonstrationPlayer
from agentfly_core.pipeline.workers.job import DemonstrationJob
from agentfly_core.pipeline.workers.local import LocalPlayer, LocalServices
from agentfly_core.records.trajectory import Ending
from agentfly_core.rollout.episode import Episode
from agentfly_core.store.artifact import Pointer
from agentfly_core.testing.episodes import ADD, episode_specs, play_all, rollout_spec, scripted
from tests.support import experiments


@pytest.mark.parametrize("most", [1, 2, sys.maxsize])
async def test_no_more_episodes_run_than_the_limit(most):
    running, seen = set[Episode](), list[int]()

    async def agent(episode: Episode) -> Ending:
        running.add(episode)
        seen.append(len(running))
        await episode.reply(*episode.opening)
        running.remove(episode)
        return Ending.NO_TOOL_CALLS

    async def policy(conversation: Any) -> str:
        await asyncio.sleep(0)
        return "99"

    spec = replace(rollout_spec(agent=agent), at_once=most)
    played, *_ = await play_all(episode_specs(ADD, chains=5), spec, scripted(policy))
    assert (len(played), max(seen)) == (5, min(5, most))


@pytest.mark.parametrize(
    ("agent", "processes", "most"),
    [
        ({"use": "program", "command": ["true"]}, 0, 6),
        ({"use": "program", "command": ["true"]}, 4, 2),
        ({}, 4, sys.maxsize),
    ],
    ids=["command", "workers", "no program"],
)
def test_workers_share_the_limit_of_programs(tmp_path, nano, agent, processes, most):
    from transformers import AutoTokenizer

    site = Site(programs=6, workers=processes)
    here = replace(experiments.experiment(tmp_path, agent=agent), site=site)
    nothing: Any = None
    services = LocalServices(nothing, nothing, AutoTokenizer.from_pretrained(nano), {})
    job = DemonstrationJob(nothing, Pointer("artifacts/data", "da7a"))
    assert LocalPlayer(here, services)._rules(job).at_once == most


def test_the_tokens_of_nano_are_learned_within_the_limit(tmp_path, monkeypatch):
    limits = list[int]()

    def spans(player: DemonstrationPlayer) -> Any:
        limits.append(player.spec.at_once)
        raise InterruptedError

    monkeypatch.setattr(DemonstrationPlayer, "spans", spans)
    agent = {"use": "program", "command": ["true"]}
    script = {"demonstrations": "agentfly_core.datasets.demonstrations:calculator"}
    made = experiments.experiment(tmp_path, model="nano", agent=agent, warm_start=script)
    with pytest.raises(InterruptedError):
        inputs.tokenizer(replace(made, site=Site(programs=6)))
    assert limits == [6]
