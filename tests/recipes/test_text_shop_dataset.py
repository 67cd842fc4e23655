"""Generated wishes for the text shop, their oracle and their baselines."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations, product
from pathlib import Path

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.inference.random_policy import random_policy
from agentfly_core.inference.scripted import ScriptedPolicy
from agentfly_core.recipes.text_shop import demonstrations
from agentfly_core.recipes.text_shop.dataset import text_shop
from agentfly_core.recipes.text_shop.demonstrations import understood
from agentfly_core.recipes.text_shop.environment import Purchase, TextShop, catalogue
from agentfly_core.recipes.text_shop.rewards import Wish, fit, purchase
from agentfly_core.recipes.text_shop.tools import browse, buy, view
from agentfly_core.records.trajectory import Observation, Problem, Score, Trajectory
from tests.support import task_checks

pytestmark = pytest.mark.slow

Bought = tuple[str, tuple[str, ...]]


@pytest.fixture(scope="module")
def hundred() -> list[Problem]:
    """A held-out problem of each of a hundred seeds, and so of as many catalogues."""
    return [text_shop(seed, 0, 0, 1)["test"][0] for seed in range(100)]


@pytest.fixture(scope="module")
def tokenizer(nano: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(nano)


async def shopped(
    problems: Sequence[Problem], policy: ScriptedPolicy, tokenizer: PreTrainedTokenizerBase
) -> list[Trajectory]:
    tools = (browse, view, buy)
    return await task_checks.played(problems, policy, tools, tokenizer, [TextShop], [purchase])


def rewards(trajectories: Sequence[Trajectory]) -> list[float]:
    scores = [trajectory.observed["purchase"] for trajectory in trajectories]
    return [score.value for score in scores if isinstance(score, Score)]


def solved(trajectories: Sequence[Trajectory]) -> float:
    return rewards(trajectories).count(1.0) / len(trajectories)


def fulfilling(problem: Problem) -> Iterator[Bought]:
    """All purchases of a colour and a size that earn 1."""
    wish = Wish(**problem.facts["wish"])
    drawn = problem.facts["catalogue"]
    for one in catalogue(drawn["seed"], drawn["products"]).products.values():
        if one.category == wish.category:
            for options in product(*one.options.values()):
                if fit(Purchase(one, options), wish).value == 1.0:
                    yield one.id, options


def test_a_prompt_contains_the_whole_wish(hundred: list[Problem]) -> None:
    for problem in hundred:
        wanted, wish = understood(problem.prompt), Wish(**problem.facts["wish"])
        assert wanted.words == " ".join((*reversed(wish.attributes), wish.category))
        assert (list(wanted.options), wanted.limit) == (wish.options, wish.limit)


def test_every_wish_can_be_fulfilled(hundred: list[Problem]) -> None:
    assert all(any(fulfilling(problem)) for problem in hundred)


def test_splits_never_share_a_wish_or_a_product() -> None:
    wished, bought = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
    for seed in (0, 1):
        for split, problems in text_shop(seed, 200, 50, 50).items():
            for problem in problems:
                wished[split].add(understood(problem.prompt).words)
                bought[split] |= {f"{seed}-{product_id}" for product_id, _ in fulfilling(problem)}
    assert all(len(group) > 20 for group in wished.values())
    for named in (wished, bought):
        for one, other in combinations(named.values(), 2):
            assert not one & other
    words = {
        split: {word for name in names for word in name.split()} for split, names in wished.items()
    }
    assert words["validation"] | words["test"] <= words["train"]


def test_the_seed_decides_the_problems() -> None:
    assert text_shop(3, 14, 2, 2) == text_shop(3, 14, 2, 2)
    ids = [
        {p.id for problems in text_shop(seed, 14, 2, 2).values() for p in problems}
        for seed in (3, 4)
    ]
    assert (len(ids[0]), len(ids[1]), ids[0] & ids[1]) == (18, 18, set())


def test_problems_use_the_given_number_of_catalogues() -> None:
    for seed, drawn in ((0, {0: 3, 1: 3, 2: 2}), (2, {6: 3, 7: 3, 8: 2})):
        problems = text_shop(seed, 8, 0, 4, catalogues=3)["train"]
        assert Counter(problem.facts["catalogue"]["seed"] for problem in problems) == drawn
        assert all(any(fulfilling(problem)) for problem in problems)


def test_too_many_problems_are_refused() -> None:
    with pytest.raises(ValueError, match=r"data\.test is 2000, .* only \d+ "):
        text_shop(0, 0, 0, 2000)


async def test_the_oracle_buys_from_its_observations(
    hundred: list[Problem], tokenizer: PreTrainedTokenizerBase
) -> None:
    played = await shopped(hundred, demonstrations.text_shop(hundred, 0, 0.0), tokenizer)
    assert solved(played) >= 0.99
    assert not any(o.error for trajectory in played for o in trajectory.observations)
    assert {len(trajectory.turns) for trajectory in played} >= {3, 4, 5}


@pytest.mark.parametrize(("attributes", "options"), [(1, 0), (3, 2)])
async def test_the_oracle_fulfils_wishes_of_all_sizes(
    attributes: int, options: int, tokenizer: PreTrainedTokenizerBase
) -> None:
    problems = text_shop(0, 0, 0, 40, attributes=attributes, options=options)["test"]
    wanted = [understood(problem.prompt) for problem in problems]
    assert {(len(one.words.split()), len(one.options)) for one in wanted} == {
        (attributes + 1, options)
    }
    played = await shopped(problems, demonstrations.text_shop(problems, 0, 0.0), tokenizer)
    assert solved(played) == 1.0


async def test_the_oracle_opens_the_next_page_if_nothing_fits() -> None:
    problem = text_shop(7, 0, 0, 1)["test"][0]
    wanted = understood(problem.prompt)
    observations = (
        Observation("browse", f"1000 {wanted.words} ${wanted.limit + 1}\npage 1 of 28"),
    )
    oracle = demonstrations.text_shop([problem], 0, 0.0)
    reply = str(await oracle(Conversation(problem, 0, 1, observations, (), seed=0)))
    assert f'{{"words": "{wanted.words}", "page": 2}}' in reply


async def test_random_calls_fulfil_almost_no_wish(
    hundred: list[Problem], tokenizer: PreTrainedTokenizerBase
) -> None:
    assert solved(await shopped(hundred, random_policy, tokenizer)) <= 0.05


def test_a_purchase_without_a_page_is_rarely_right() -> None:
    """Neither the best for all, nor the best for a category among other wishes of that shop."""
    problems = text_shop(0, 0, 0, 500)["test"]
    [(_, right)] = Counter(one for p in problems for one in fulfilling(p)).most_common(1)
    assert right / 500 <= 0.05
    seen = defaultdict[str, Counter[Bought]](Counter)
    for problem in problems[:400]:
        seen[problem.facts["wish"]["category"]].update(fulfilling(problem))
    best = {category: counted.most_common(1)[0][0] for category, counted in seen.items()}
    guessed = [best.get(p.facts["wish"]["category"]) in fulfilling(p) for p in problems[400:]]
    assert sum(guessed) / 100 <= 0.15


async def test_spoilt_episodes_have_valid_calls_and_are_all_wrong(
    hundred: list[Problem], tokenizer: PreTrainedTokenizerBase
) -> None:
    played = await shopped(hundred, demonstrations.text_shop(hundred, 0, 1.0), tokenizer)
    assert solved(played) == 0.0
    assert not any(o.error for trajectory in played for o in trajectory.observations)
    assert len({*rewards(played)}) >= 4


async def test_an_oracle_without_a_product_gives_up(hundred: list[Problem]) -> None:
    observations = (Observation("browse", "Nothing was found."),)
    conversation = Conversation(hundred[0], 0, 1, observations, (), seed=0)
    oracle = demonstrations.text_shop(hundred, 0, 0.0)
    assert await oracle(conversation) == "Nothing fits."


def test_an_unknown_prompt_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'Buy!', .*recipes\.text_shop"):
        understood("Buy!")
