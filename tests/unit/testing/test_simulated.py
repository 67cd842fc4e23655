"""The simulated policy: deterministic, without access to gold labels, with errors at a rate."""

import re
from statistics import NormalDist

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.records.trajectory import Message, Problem
from agentfly_core.rewards.exact import exact
from agentfly_core.testing import (
    Simulated,
    Visible,
    counted,
    play,
    rollout_spec,
    scores_of_policy,
)

SUMS = [Problem(f"add-{n}", f"{n}+58?", {"answer": str(n + 58)}) for n in range(200)]


def adds(visible: Visible) -> str | None:
    match = re.fullmatch(r"(\d+)\+(\d+)\?", visible.texts[-1])
    return str(int(match[1]) + int(match[2])) if match else None


def asked(text: str, seed: int = 0) -> Conversation:
    problem = counted(Problem("p", text, {"answer": "99"}))
    return Conversation(problem, 0, 0, (Message("user", text),), (), seed, "main")


async def test_a_skill_computes_the_answer_from_the_text() -> None:
    policy = Simulated([adds])
    assert [await policy(asked("41+58?")), await policy(asked("Why?"))] == ["99", "I do not know."]
    assert policy.facts_read == 0


async def test_the_first_skill_that_applies_replies() -> None:
    assert await Simulated([lambda _: None, adds, lambda _: "7"])(asked("41+58?")) == "99"


async def test_replies_follow_from_what_is_visible_alone() -> None:
    policy = Simulated([lambda visible: str(visible.draw.random())])
    assert await policy(asked("41+58?", 1)) == await policy(asked("41+58?", 2))
    assert await policy(asked("41+58?")) != await policy(asked("42+58?"))
    assert await policy(asked("41+58?")) != await Simulated(policy.skills, seed=1)(asked("41+58?"))


async def test_every_read_of_facts_by_a_skill_is_counted() -> None:
    facts = counted(SUMS[0]).facts
    reads = [
        lambda: facts["answer"],
        lambda: facts.get("answer"),
        lambda: list(facts),
        lambda: "58" in facts,
        lambda: list(facts.values()),
        lambda: list(facts.items()),
        lambda: {**facts},
        lambda: facts == {},
        lambda: len(facts),
    ]
    for read in reads:
        policy = Simulated([lambda _, read=read: str(read())])
        await policy(asked("41+58?"))
        assert policy.facts_read > 0
    assert facts["answer"] == "58"


async def test_a_policy_that_looks_up_answers_is_found_out() -> None:
    policy, problem = Simulated([]), counted(SUMS[3])
    policy.skills = [lambda visible: problem.facts["answer"]]
    trajectory = await play(policy, problem=problem, spec=rollout_spec())
    assert trajectory.answer == "61" and policy.facts_read == 1


async def test_errors_come_at_their_rate_and_are_shared() -> None:
    policy = Simulated([adds], error_rate=0.3, mistake=lambda visible, reply: f"{reply}7")
    scores = await scores_of_policy(policy, SUMS, rollout_spec(), [exact])
    right = sum(one["exact"] for one in scores.values())
    half_width = NormalDist().inv_cdf(0.995) * (len(SUMS) * 0.3 * 0.7) ** 0.5
    assert abs(right - 0.7 * len(SUMS)) <= half_width
    again = Simulated([adds], error_rate=0.3, mistake=policy.mistake)
    assert await scores_of_policy(again, SUMS, rollout_spec(), [exact]) == scores
    assert policy.facts_read == 0
