"""The text shop, its pages and its reward."""

import pytest

from agentfly_core.recipes.text_shop.environment import (
    Catalogue,
    CatalogueProduct,
    Purchase,
    TextShop,
    catalogue,
)
from agentfly_core.recipes.text_shop.rewards import Wish, fit, purchase
from agentfly_core.recipes.text_shop.tools import browse, buy, view
from agentfly_core.records.trajectory import (
    Ending,
    Observation,
    Problem,
    Score,
    ToolCall,
    Trajectory,
)
from agentfly_core.testing.episodes import play, rollout_spec

FACTS = {
    "catalogue": {"seed": 7, "products": 1000},
    "wish": {"category": "coat", "attributes": ["cotton", "slim"], "options": ["red"], "limit": 60},
}
COAT = Problem("coat", "Buy a slim cotton coat (red) for at most $60.", FACTS)
LISTED = """\
2630 checked slim cotton coat $69
2723 striped slim cotton coat $55
1275 checked long cotton coat $35
1296 checked slim cotton shirt $24
page 1 of 28"""
VIEWED = """\
2723 striped slim cotton coat $55
colour: red, grey
size: tiny, small"""
SHIRT = CatalogueProduct(
    "4172",
    "shirt",
    ("cotton", "slim", "plain"),
    23,
    {"colour": ["red", "grey"], "size": ["small", "large"]},
)


async def shopping(*calls: ToolCall, problem: Problem = COAT) -> Trajectory:
    rules = rollout_spec(
        browse, view, buy, rewards=[purchase], limits={TextShop: 1}, max_turns=len(calls)
    )
    return await play([*calls], problem=problem, spec=rules)


def browsing(words: str, page: int = 1) -> ToolCall:
    return ToolCall("browse", {"words": words, "page": page})


def viewing(product: str) -> ToolCall:
    return ToolCall("view", {"product": product})


def buying(product: str, *options: str) -> ToolCall:
    return ToolCall("buy", {"product": product, "options": list(options)})


async def opened(problem: Problem = COAT) -> TextShop:
    shop = TextShop()
    await shop.reset(problem)
    return shop


async def test_products_are_listed_viewed_and_bought() -> None:
    trajectory = await shopping(
        browsing("slim cotton coat"), viewing("2723"), buying("2723", "red")
    )
    assert trajectory.observations == (
        Observation("browse", LISTED),
        Observation("view", VIEWED),
        Observation("buy", "Bought striped slim cotton coat, red"),
    )
    assert trajectory.ending is Ending.TERMINAL
    parts = {"type": 1.0, "attributes": 2.0, "options": 1.0, "price": 1.0}
    assert trajectory.observed == {"purchase": Score(1.0, parts)}


async def test_without_a_purchase_the_reward_is_zero() -> None:
    trajectory = await shopping(browsing("slim cotton coat"), viewing("2723"))
    parts = {"type": 0.0, "attributes": 0.0, "options": 0.0, "price": 0.0}
    assert trajectory.observed == {"purchase": Score(0.0, parts)}


@pytest.mark.parametrize(
    ("wish", "options", "parts", "value"),
    [
        (Wish("shirt", ["cotton", "slim"], ["red"], 30), ["red", "large"], (1, 2, 1, 1), 1.0),
        (Wish("shirt", ["cotton", "slim"], ["red"], 30), ["grey"], (1, 2, 0, 1), 3 / 4),
        (Wish("shirt", ["cotton", "slim"], ["red"], 20), ["red"], (1, 2, 1, 0), 3 / 4),
        (Wish("shirt", ["wool", "slim"], ["red", "small"], 23), ["red"], (1, 1, 1, 1), 3 / 5),
        (Wish("shirt", ["cotton"], [], 30), [], (1, 1, 0, 1), 1.0),
        (Wish("coat", ["cotton", "slim"], ["red"], 30), ["red"], (0.5, 2, 1, 1), 1 / 2),
        (Wish("mug", ["clay", "deep"], ["red"], 30), ["red"], (0, 0, 1, 1), 0.0),
    ],
)
def test_the_reward_is_the_met_share_times_the_type(
    wish: Wish, options: list[str], parts: tuple[float, ...], value: float
) -> None:
    score = fit(Purchase(SHIRT, tuple(options)), wish)
    assert tuple(score.parts.values()) == parts
    assert score.value == pytest.approx(value)


def test_products_are_sorted_by_matches_and_number() -> None:
    titles = {"3": ("cotton", "slim"), "2": ("wool", "slim"), "1": ("wool", "long"), "4": ("silk",)}
    catalogue = Catalogue(
        [CatalogueProduct(key, "coat", words, 20, {}) for key, words in titles.items()]
    )
    assert [one.id for one in catalogue.search("Slim, wool!")] == ["2", "1", "3"]
    assert [one.id for one in catalogue.search("coat")] == ["1", "2", "3", "4"]
    assert catalogue.search("mug") == catalogue.search("") == []


def test_the_seed_decides_the_products() -> None:
    drawn = catalogue(3, 1500).products
    assert drawn == catalogue.__wrapped__(3, 1500).products != catalogue(4, 1500).products
    assert len(drawn) == 1500 and list(drawn) == sorted(drawn)
    for product in drawn.values():
        assert len(product.id) == 4 and len(product.title.split()) == 4
        assert {kind: len(set(values)) > 1 for kind, values in product.options.items()} == {
            "colour": True,
            "size": True,
        }


async def test_pages_are_numbered() -> None:
    shop = await opened()
    ids = [product.id for product in shop.catalogue.search("titanium hoe")]
    pages = [await browse("titanium hoe", page, shop=shop) for page in range(1, 17)]
    assert [line.split()[0] for page in pages for line in page.splitlines()[:-1]] == ids
    assert (pages[0].splitlines()[-1], pages[-1].splitlines()[-1]) == (
        "page 1 of 16",
        "page 16 of 16",
    )
    trajectory = await shopping(browsing("titanium hoe", 17), browsing("?"), browsing("hoe", 0))
    results = [(one.content, one.error) for one in trajectory.observations]
    assert results[:2] == [
        ("There is no page 17, the last one is 16.", True),
        ("Nothing was found.", False),
    ]
    assert results[2][1] and "greater than or equal to 1" in results[2][0]


async def test_wrong_calls_are_reported_and_buy_nothing() -> None:
    trajectory = await shopping(
        viewing("1"),
        buying("1"),
        buying("2723", "pink"),
        buying("2723", "red", "grey"),
        buying("2723", "red", "red"),
    )
    assert [(one.content, one.error) for one in trajectory.observations] == [
        ("There is no product '1'.", True),
        ("There is no product '1'.", True),
        ("2723 has no 'pink'. It has: red, grey, tiny, small.", True),
        ("Choose one colour, not 2.", True),
        ("Choose one colour, not 2.", True),
    ]
    assert trajectory.observed["purchase"] == Score(
        0.0, {"type": 0.0, "attributes": 0.0, "options": 0.0, "price": 0.0}
    )


async def test_a_reset_shop_has_no_old_purchase() -> None:
    shop, fresh = await opened(), await opened()
    await browse("coat", shop=shop)
    await buy("2723", ("red",), shop=shop)
    await shop.reset(COAT)
    assert (shop.page, shop.purchase, shop.state_key()) == ("", None, fresh.state_key())


async def test_a_shop_state_is_its_page_and_its_purchase() -> None:
    one, other = await opened(), await opened()
    await browse("coat", 2, shop=one)
    await view("2723", shop=one)
    assert one.state_key() != other.state_key()
    await view("2723", shop=other)
    assert one.state_key() == other.state_key()
    await buy("2723", ("red", "tiny"), shop=one)
    assert one.state_key() != other.state_key()
    await buy("2723", ("tiny", "red"), shop=other)
    assert one.state_key() == other.state_key()


async def test_facts_without_a_catalogue_fail_the_episode() -> None:
    trajectory = await shopping(viewing("2723"), problem=Problem("p", "Buy!", {}))
    assert trajectory.ending is Ending.FAILED
    assert "TextShop is not ready for problem 'p': KeyError" in str(trajectory.error)
