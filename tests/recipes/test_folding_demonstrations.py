"""Demonstrations of ledgers, played with the settings of the experiment."""

import sys
from dataclasses import replace

import pytest

from agentfly_core.agents.folding import Folding
from agentfly_core.agents.tool_loop import tool_loop
from agentfly_core.records.trajectory import Ending
from agentfly_core.rl.batch import pack
from tests.support.shipped_demonstrations import Played, scores

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folding(tmp_path_factory: pytest.TempPathFactory) -> Played:
    return Played("folding", tmp_path_factory.mktemp("folding"))


async def test_unspoilt_demonstrations_are_all_right(folding: Played) -> None:
    assert await scores(await folding.episodes(0.0)) == {1.0}


async def test_spoilt_demonstrations_are_wrong_but_well_formed(folding: Played) -> None:
    episodes = await folding.episodes(1.0)
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
