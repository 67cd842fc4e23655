"""Policies named by their import path: a policy function or a factory."""

from collections.abc import Sequence

import pytest

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.experiment.policy_path import check_policy, of_tasks, policy_at
from agentfly_core.inference.scripted import ScriptedPolicy
from agentfly_core.records.trajectory import Problem

HERE = "tests.unit.experiment.test_policy_path"
PROBLEMS = [Problem("a", "?"), Problem("b", "?")]
BEGUN = Conversation(PROBLEMS[0], 0, 0, (), (), seed=7)


async def direct(conversation: Conversation) -> str:
    return f"seed {conversation.seed}"


def made(problems: Sequence[Problem], seed: int, word: str = "of") -> ScriptedPolicy:
    async def policy(conversation: Conversation) -> str:
        return f"{seed} {word} {len(problems)}"

    return policy


class Counting:
    def __init__(self, problems: Sequence[Problem], seed: int) -> None:
        self.asked = seed

    async def __call__(self, conversation: Conversation) -> str:
        self.asked += 1
        return str(self.asked)


def plain(problems: Sequence[Problem], seed: int) -> object:
    return lambda problem, chain, turn: "99"


async def test_a_path_names_a_policy_or_a_factory() -> None:
    assert await policy_at(f"{HERE}:direct", {}, PROBLEMS, 3)(BEGUN) == "seed 7"
    assert await policy_at(f"{HERE}:made", {"word": "and"}, PROBLEMS, 3)(BEGUN) == "3 and 2"
    assert await policy_at(f"{HERE}:Counting", {}, PROBLEMS, 3)(BEGUN) == "4"


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("direct", {"word": "and"}, "direct is a policy, so it takes no settings, got word"),
        ("made", {"words": "and"}, "made has no setting 'words'"),
        ("made", {"word": 7}, "made: word: Input should be a valid string"),
        ("BEGUN", {}, "is a Conversation, expected a function or a class"),
        ("PROBLEMS", {}, "is a list, expected a function or a class"),
    ],
)
def test_a_wrong_policy_or_setting_is_refused(
    name: str, settings: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        check_policy(f"{HERE}:{name}", settings)  # type: ignore[arg-type]


def test_another_return_value_is_refused_with_the_expected_one() -> None:
    with pytest.raises(ValueError, match=r"plain returned <function .* expected an `async def` f"):
        policy_at(f"{HERE}:plain", {}, PROBLEMS, 3)


def forgotten(conversation: Conversation) -> str:
    return "99"


def test_a_policy_without_async_is_refused_with_a_hint() -> None:
    with pytest.raises(ValueError, match=r":forgotten .*`async` missing\?"):
        check_policy(f"{HERE}:forgotten", {})


async def test_each_task_of_a_mixture_has_its_own_policy() -> None:
    problems = [Problem("a", "?", task="sums"), Problem("b", "?", task="sums")]
    problems.append(Problem("a", "?", task="shop"))
    shown = {
        "sums": {"demonstrations": f"{HERE}:made", "settings": {"word": "sums,"}},
        "shop": {"demonstrations": f"{HERE}:spoils", "settings": {}},
    }
    policy = of_tasks(problems, 3, shown, spoilt=0.25)
    replies = [
        await policy(Conversation(problem, 0, 0, (), (), seed=7))
        for problem in (problems[0], problems[2])
    ]
    assert replies == ["3 sums, 2", "3 0.25 of 1"]


def spoils(problems: Sequence[Problem], seed: int, spoilt: float = 0.0) -> ScriptedPolicy:
    return made(problems, seed, f"{spoilt} of")
