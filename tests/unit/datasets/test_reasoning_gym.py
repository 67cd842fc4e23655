"""Problems of reasoning-gym."""

import ast
from importlib.util import find_spec
from typing import Any

import pytest

from agentfly_core.datasets.reasoning_gym import reasoning_gym, stored

pytestmark = pytest.mark.skipif(
    find_spec("reasoning_gym") is None, reason="reasoning-gym is not installed: its extra"
)

TWO_DIGITS = {"min_terms": 2, "max_terms": 2, "min_digits": 2, "max_digits": 2}


def test_the_seed_decides_the_problems() -> None:
    once, again, other = (reasoning_gym(seed, 8, 2, 4, "chain_sum") for seed in (7, 7, 8))
    assert once == again
    assert {name: len(problems) for name, problems in once.items()} == {
        "train": 8,
        "validation": 2,
        "test": 4,
    }
    assert once["train"] != other["train"]


def test_no_prompt_is_repeated() -> None:
    one_digit = {**TWO_DIGITS, "min_digits": 1, "max_digits": 1}
    splits = reasoning_gym(0, 100, 20, 40, "chain_sum", one_digit)  # of less than 200 there are
    prompts = [problem.prompt for problems in splits.values() for problem in problems]
    assert len(prompts) == len(set(prompts)) == 160


def test_the_answer_and_the_metadata_are_facts() -> None:
    problem = reasoning_gym(0, 1, 0, 1, "chain_sum", TWO_DIGITS)["train"][0]
    expression = problem.facts["expression"]
    assert problem.prompt.endswith(f"arithmetic problem: {expression} =")
    assert problem.facts["answer"] == str(eval(expression))
    assert ast.literal_eval(problem.facts["entry"])["question"] == problem.prompt


def test_an_entry_is_stored_with_its_tuples() -> None:
    entry = {"question": "?", "answer": "1", "metadata": {"output": ((1, 2),), "made_by": object()}}
    assert ast.literal_eval(stored(entry))["metadata"] == {"output": ((1, 2),)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dataset", "config", "message"),
    [
        ("chain_sun", {}, "refuses 'chain_sun' with {}: .*not registered"),
        ("chain_sum", {"min_term": 1}, "unexpected keyword argument 'min_term'"),
        ("chain_sum", {"min_terms": 9, "max_terms": 2}, "max_terms must be >= min_terms"),
        ("puzzle24", {}, "one answer solves all its problems"),
        ("game_of_life_halting", {}, "one answer solves all its problems"),
        ("coin_flip", {}, "data.train is 2000, but 'coin_flip' made only 2"),
    ],
)
def test_invalid_settings_are_refused(dataset: str, config: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        reasoning_gym(0, 2000 if dataset == "coin_flip" else 4, 0, 4, dataset, config)


@pytest.mark.long
def test_all_supported_datasets_make_problems() -> None:
    from reasoning_gym.factory import DATASETS

    refused = set()
    for dataset in sorted(set(DATASETS) - {"knight_swap"}):
        try:
            reasoning_gym(0, 2, 0, 1, dataset)
        except ValueError:
            refused.add(dataset)
    assert refused == {"composite", "game_of_life_halting", "puzzle24"}
