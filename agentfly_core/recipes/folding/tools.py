"""The tool `carry`, which adds the entry on a page of a ledger to a balance."""

from collections.abc import Sequence

from agentfly_core import Problem, ToolError, tool


@tool
async def carry(page: int, balance: int, *, problem: Problem) -> str:
    """Add the entry on a page of the ledger to a balance.

    Args:
        page: the page's number
        balance: what the pages before it add up to, 0 before the first
    """
    pages: Sequence[tuple[int, int]] = problem.facts["pages"]
    numbers = [number for number, _ in pages]
    if page not in numbers:
        raise ToolError(f"This ledger has no page {page}.")
    place = numbers.index(page)
    rest = numbers[place + 1 :]
    following = f"next page {rest[0]}" if rest else "last page"
    return f"balance {balance + pages[place][1]}, {following}"
