"""Scripts that write programs, played with the sandbox."""

from pathlib import Path

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from agentfly_core.datasets import demonstrations
from agentfly_core.datasets.powers import powers
from agentfly_core.records.trajectory import Score, Trajectory
from agentfly_core.rewards.exact import exact
from agentfly_core.tools.answer import answer
from agentfly_core.tools.python import python
from tests.support import task_checks

pytestmark = pytest.mark.slow

POWERS = powers(0, 40, 1, 1)["train"]


@pytest.fixture(scope="module")
def tokenizer(nano: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(nano)


async def programmed(spoilt: float, tokenizer: PreTrainedTokenizerBase) -> list[Trajectory]:
    policy = demonstrations.python(POWERS, 0, spoilt)
    return await task_checks.played(POWERS, policy, (python, answer), tokenizer)


@pytest.mark.usefixtures("sandbox")
async def test_an_oracle_calculates_with_programs(
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    oracle = await programmed(0.0, tokenizer)
    assert [await exact.score(trajectory, {}) for trajectory in oracle] == [Score(1.0)] * len(
        POWERS
    )
    assert {trajectory.observations[0].tool for trajectory in oracle} == {"python"}


@pytest.mark.usefixtures("sandbox")
async def test_spoilt_programs_run_and_are_all_wrong(
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    for trajectory in await programmed(1.0, tokenizer):
        assert await exact.score(trajectory, {}) == Score(0.0)
        assert not any(observation.error for observation in trajectory.observations)
