"""Which of three words is of a kind."""

import pytest

from agentfly_core.recipes.smollm2_kinds.dataset import KINDS, kinds


def test_one_of_three_words_is_of_the_wanted_kind() -> None:
    kind_of = {word: kind for kind, words in KINDS.items() for word in words.split()}
    for problem in kinds(0, 200, 20, 100)["test"]:
        facts = problem.facts
        right = [word for word in facts["options"] if kind_of[word] == facts["kind"]]
        assert right == [facts["answer"]]
        assert len({kind_of[word] for word in facts["options"]}) == 3
        first, second, third = facts["options"]
        assert problem.prompt == f"Which of these is {facts['kind']}: {first}, {second} or {third}?"


def test_a_word_has_one_kind_and_one_split() -> None:
    words = [word for text in KINDS.values() for word in text.split()]
    assert len(words) == len(set(words)) == 8 * 20
    splits = [
        {word for problem in problems for word in problem.facts["options"]}
        for problems in kinds(0, 2000, 1000, 2000).values()
    ]
    assert [len(split) for split in splits] == [80, 24, 56]
    assert not splits[0] & splits[1] | splits[0] & splits[2] | splits[1] & splits[2]


def test_the_right_word_has_any_position() -> None:
    problems = kinds(0, 900, 0, 0)["train"]
    places = [problem.facts["options"].index(problem.facts["answer"]) for problem in problems]
    assert all(250 < places.count(place) < 350 for place in range(3))


def test_too_many_problems_are_refused() -> None:
    with pytest.raises(ValueError, match=r"data\.validation is 5000, .* 4536 "):
        kinds(0, 1, 5000, 1)
