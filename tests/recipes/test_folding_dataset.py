"""Generated ledgers."""

import pytest

from agentfly_core.recipes.folding.dataset import ledgers


def test_a_ledger_has_its_first_page_and_its_sum() -> None:
    (problem, *_) = ledgers(0, 100, 30, 30)["train"]
    pages = problem.facts["pages"]
    assert problem.prompt == f"What do the pages from {pages[0][0]} on add up to?"
    assert problem.facts["answer"] == str(sum(entry for _, entry in pages))
    assert problem.id == "-".join(["ledger", *(f"{number}:{entry}" for number, entry in pages)])


def test_a_ledger_has_the_given_number_of_pages() -> None:
    made = ledgers(0, 300, 100, 100, shortest=2, longest=4)["train"]
    numbers = [[number for number, _ in problem.facts["pages"]] for problem in made]
    assert {len(each) for each in numbers} == {2, 3, 4}
    assert all(len({*each}) == len(each) for each in numbers)


def test_splits_have_their_sizes_and_share_no_page() -> None:
    splits = ledgers(0, 4096, 200, 500)
    assert [len(problems) for problems in splits.values()] == [4096, 200, 500]
    pages = [
        {(number, entry) for problem in problems for number, entry in problem.facts["pages"]}
        for problems in splits.values()
    ]
    assert not pages[0] & pages[1] and not pages[0] & pages[2] and not pages[1] & pages[2]


def test_the_seed_decides_the_ledgers() -> None:
    assert ledgers(3, 50, 0, 20) == ledgers(3, 50, 0, 20)
    assert ledgers(3, 50, 0, 20) != ledgers(4, 50, 0, 20)


def test_a_split_with_too_small_a_share_of_the_pages_is_refused() -> None:
    with pytest.raises(ValueError, match=r"data\.test requests 1 .* only 3 page numbers"):
        ledgers(0, 4000, 0, 1)
    with pytest.raises(ValueError, match=r"data\.train requests 9000 .* only 90 page"):
        ledgers(0, 9000, 0, 100, shortest=2, longest=2)


@pytest.mark.parametrize(("shortest", "longest"), [(1, 3), (4, 3), (3, 91)])
def test_invalid_lengths_are_refused(shortest: int, longest: int) -> None:
    with pytest.raises(ValueError, match=f"cannot have {shortest} to {longest} pages"):
        ledgers(0, 10, 0, 10, shortest, longest)
