"""The ledger that is read page by page."""

from agentfly_core.recipes.folding.tools import carry
from agentfly_core.records.trajectory import Problem, ToolCall
from agentfly_core.testing.episodes import play

LEDGER = Problem("ledger", "?", {"answer": "67", "pages": [[47, 12], [83, 55]]})


async def answered(**arguments: object) -> str:
    call = ToolCall("carry", arguments)
    trajectory = await play([call, "67"], carry, problem=LEDGER)
    (observation,) = trajectory.observations
    return f"{'error: ' if observation.error else ''}{observation.content}"


async def test_a_page_adds_its_entry_and_names_the_next_page() -> None:
    assert await answered(page=47, balance=30) == "balance 42, next page 83"
    assert await answered(page=83, balance=12) == "balance 67, last page"


async def test_an_unknown_page_is_a_tool_error() -> None:
    assert (await answered(page=12, balance=0)).endswith("This ledger has no page 12.")
    assert (await answered(page=12, balance=0)).startswith("error: ")


async def test_wrong_arguments_are_reported_to_the_model() -> None:
    assert "balance" in await answered(page=47)
    assert (await answered(page="first", balance=0)).startswith("error: ")
