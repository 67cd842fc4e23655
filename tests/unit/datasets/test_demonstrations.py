"""Scripts that show a model its tools, played with the real tools."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.datasets import demonstrations
from agentfly_core.datasets.arithmetic import arithmetic
from agentfly_core.inference.scripted import Scripted, ScriptedPolicy
from agentfly_core.inference.templates.chatml import Hermes
from agentfly_core.records.trajectory import Ending, Problem, Score, Trajectory
from agentfly_core.rewards.exact import exact
from agentfly_core.rl.batch import pack
from agentfly_core.rollout.episode import RolloutSpec
from agentfly_core.testing.episodes import episode_specs, play_all, rollout_spec
from agentfly_core.tools.answer import answer
from agentfly_core.tools.calculator import calculator

pytestmark = pytest.mark.slow

SUMS = arithmetic(0, 200, 1, 1)["train"]


@pytest.fixture(scope="module")
def tokenizer(nano: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(nano)


async def played(
    problems: Sequence[Problem],
    policy: ScriptedPolicy,
    rules: RolloutSpec,
    tokenizer: PreTrainedTokenizerBase,
) -> list[Trajectory]:
    encode = partial(tokenizer.encode, add_special_tokens=False)
    sampler = Scripted(encode, rules.template.stop_tokens[0], policy)
    return (await play_all(episode_specs(*problems), rules, sampler))[0]


async def sums(spoilt: float, tokenizer: PreTrainedTokenizerBase) -> list[Trajectory]:
    rules = rollout_spec(calculator, answer, template=Hermes(tokenizer, show_tools=False))
    return await played(SUMS, demonstrations.calculator(SUMS, 0, spoilt), rules, tokenizer)


async def test_unspoilt_sums_are_all_right_after_one_calculation(
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    for trajectory in await sums(0.0, tokenizer):
        assert await exact.score(trajectory, {}) == Score(1.0)
        assert [observation.tool for observation in trajectory.observations] == [
            "calculator",
            "answer",
        ]
        assert trajectory.ending is Ending.TERMINAL


async def test_spoilt_sums_have_valid_calls_and_are_all_wrong(
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    for trajectory in await sums(1.0, tokenizer):
        assert await exact.score(trajectory, {}) == Score(0.0)
        assert not any(observation.error for observation in trajectory.observations)


async def test_the_given_share_is_spoilt(tokenizer: PreTrainedTokenizerBase) -> None:
    scores = [await exact.score(trajectory, {}) for trajectory in await sums(0.4, tokenizer)]
    right = sum(score.value for score in scores if isinstance(score, Score)) / len(scores)
    assert right == pytest.approx(0.6, abs=0.12)


async def test_episodes_of_one_problem_can_differ() -> None:
    policy = demonstrations.calculator(SUMS, 0, 1.0)
    begun = [Conversation(SUMS[0], chain, 0, (), (), seed=0) for chain in range(20)]
    replies = [await policy(conversation) for conversation in begun]
    assert len(set(replies)) > 3
    assert replies[7] == await policy(begun[7])


async def test_only_replies_of_the_model_are_trained(tokenizer: PreTrainedTokenizerBase) -> None:
    sum_ = Problem("add-41-58", "What is 41+58?", {"answer": "99"})
    rules = rollout_spec(calculator, answer, template=Hermes(tokenizer, show_tools=False))
    (trajectory,) = await played(
        [sum_], demonstrations.calculator([sum_], 0, 0.0), rules, tokenizer
    )
    batch = pack([trajectory])
    marked = [
        (".", ["<|im_start|>", "user\nWhat is ", "4", "1", "+", "5", "8", "?", "<|im_end|>", "\n"]),
        (".", ["<|im_start|>", "assistant\n"]),
        ("x", ['<tool_call>\n{"name": "calculator", "arguments": {"expression": "', "4", "1"]),
        ("x", ["+", "5", "8", '"}}\n</tool_call>', "<|im_end|>"]),
        (".", ["\n", "<|im_start|>", "user\n<tool_response>\n", "9", "9"]),
        (".", ["\n</tool_response>", "<|im_end|>", "\n", "<|im_start|>", "assistant\n"]),
        ("x", ['<tool_call>\n{"name": "answer", "arguments": {"answer": "', "9", "9"]),
        ("x", ['"}}\n</tool_call>', "<|im_end|>"]),
    ]
    table = [(piece, mark) for mark, pieces in marked for piece in pieces]
    read = [tokenizer.decode([token]) for token in batch.tokens[0].tolist()]
    assert (
        list(zip(read, (".x"[sampled] for sampled in batch.sampled[0].tolist()), strict=True))
        == table
    )
