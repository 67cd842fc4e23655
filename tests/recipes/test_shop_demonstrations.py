"""Scripts that shop, played in the shop."""

from pathlib import Path

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from agentfly_core.recipes.shop import demonstrations
from agentfly_core.recipes.shop.dataset import shop
from agentfly_core.recipes.shop.environment import Shop
from agentfly_core.recipes.shop.rewards import bought
from agentfly_core.recipes.shop.tools import add_to_cart, checkout, search
from agentfly_core.records.trajectory import Ending, Score, Trajectory
from tests.support import task_checks

pytestmark = pytest.mark.slow

WISHES = shop(0, 200, 1, 1)["train"]


@pytest.fixture(scope="module")
def tokenizer(nano: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(nano)


async def wishes(spoilt: float, tokenizer: PreTrainedTokenizerBase) -> list[Trajectory]:
    policy = demonstrations.shop(WISHES, 0, spoilt)
    tools = (search, add_to_cart, checkout)
    return await task_checks.played(WISHES, policy, tools, tokenizer, [Shop], [bought])


async def test_unspoilt_wishes_are_bought_in_five_turns(tokenizer: PreTrainedTokenizerBase) -> None:
    for trajectory in await wishes(0.0, tokenizer):
        assert trajectory.observed["bought"] == Score(1.0, {"lines": 1.0})
        assert len(trajectory.turns) == 5
        assert trajectory.ending is Ending.TERMINAL


async def test_spoilt_wishes_are_not_fulfilled(tokenizer: PreTrainedTokenizerBase) -> None:
    scores = [trajectory.observed["bought"] for trajectory in await wishes(1.0, tokenizer)]
    assert {score.value for score in scores if isinstance(score, Score)} == {0.0}
