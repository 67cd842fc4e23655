"""Right and wrong answers are scored before any run."""

import json
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.authoring.reward import reward
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.inference.scripted import ScriptedPolicy
from agentfly_core.pipeline import inputs
from agentfly_core.pipeline.play import solvable
from agentfly_core.pipeline.stop_conditions import GateClosed
from agentfly_core.records.trajectory import Examples, Problem, Trajectory
from agentfly_core.store.artifact import Artifact
from tests.support.capitals import Atlas
from tests.support.experiments import experiment
from tests.support.waiting import LIMIT

HERE = __name__
ASKED: list[str] = []
RELEASED = threading.Event()
EXACT = "agentfly_core.rewards.exact:exact"
CAPITALS = {
    "data": {"use": "tests.support.capitals:capitals", "train": 3, "validation": 0, "test": 1},
    "tools": ["tests.support.capitals:look_up", "tests.support.capitals:answer"],
    "rewards": {"tests.support.capitals:right": 1.0},
    "environments": {"tests.support.capitals:Atlas": 2},
    "rollout": {"problems": 2},
}


def answers(seed: int, train: int, validation: int, test: int, right: Sequence[Any] = ()) -> Any:
    """Problems with these correct answers."""
    problems = [
        Problem(f"p{number}", f"How many are {number}?", {"answer": fact})
        for number, fact in enumerate(right)
    ]
    return {"train": problems[:-1], "validation": [], "test": problems[-1:]}


def one_without_topic(seed: int, train: int, validation: int, test: int) -> Any:
    """Problems about numbers, the last of which lacks its topic."""
    splits = answers(seed, train, validation, test, ["1"] * (train + test))
    first = [replace(one, facts={**one.facts, "topic": "sums"}) for one in splits["train"][:-1]]
    return {**splits, "train": [*first, splits["train"][-1]]}


@reward(examples=lambda problem: Examples((problem.facts["answer"],), ("", "no")))
def lenient(trajectory: Trajectory) -> float:
    """1 for a short answer."""
    return float(len(trajectory.answer or "") < 9)


@reward(timeout=0.05, examples=lambda problem: Examples((problem.facts["answer"],), ()))
async def blocks(trajectory: Trajectory) -> float:
    """Hold the event loop for one answer."""
    if trajectory.answer == "1":
        RELEASED.wait(LIMIT)
    return 1.0


@reward(retries=2)
def judge(trajectory: Trajectory) -> float:
    """Ask a service that does not run."""
    ASKED.append("judge")
    return 1.0


@reward(concurrency=4, examples=lambda problem: Examples(("1",), ()))
def judge_with_examples(trajectory: Trajectory) -> float:
    """Ask a service that does not run."""
    ASKED.append("judge")
    return 1.0


@reward(retries=1)
def judge_of_the_atlas(atlas: Atlas) -> float:
    """Ask a service that does not run."""
    ASKED.append("judge")
    return 1.0


@reward
def tenths(trajectory: Trajectory) -> float:
    """1 up to rounding."""
    return sum([0.1] * 10)


@reward
def words(trajectory: Trajectory) -> Any:
    """A text instead of a number."""
    return "good"


@reward
def any_answer(trajectory: Trajectory) -> float:
    """1 for an answer, even an empty one."""
    return float(trajectory.answer is not None)


def atlas(problems: Sequence[Problem], seed: int, spoilt: float = 0.5) -> ScriptedPolicy:
    """Knows all capitals but Kenya's."""

    async def policy(conversation: Conversation) -> str:
        correct = conversation.problem.id != "Kenya" and not spoilt
        return str(conversation.problem.facts["capital"]) if correct else "Atlantis"

    return policy


def made(folder: Path, **settings: Any) -> tuple[Experiment, Artifact]:
    here = experiment(folder, **settings)
    return here, inputs.dataset(here)


def check_problems(here: Experiment, data: Artifact) -> list[str]:
    return solvable.check(here, data)


def report_of_answers(folder: Path, right: Sequence[Any], **settings: Any) -> list[str]:
    data = {"use": f"{HERE}:answers", "train": len(right) - 1, "validation": 0, "test": 1}
    data |= {"right": list(right), **settings.pop("data", {})}
    return check_problems(*made(folder, data=data, **settings))


def test_a_reward_that_blocks_leaves_its_problem_unsolved(tmp_path: Path) -> None:
    try:
        with pytest.raises(ValueError, match=r"1 problem .*held the event loop"):
            report_of_answers(tmp_path, ["0", "1", "2"], rewards={f"{HERE}:blocks": 1.0})
    finally:
        RELEASED.set()


def test_all_right_answers_and_a_sample_of_wrong_ones_are_scored(tmp_path: Path) -> None:
    (line,) = report_of_answers(tmp_path, [str(number) for number in range(100)])
    assert line == (
        "exact: the right answer earns 1 in 100 of 100 problems; wrong answers earn less in 192 of "
        "192 cases on 64 sampled problems."
    )


def test_an_unsolvable_problem_is_refused_with_its_fact(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"1 problem ") as error:
        report_of_answers(tmp_path, ["1", {"right": "2"}, "3"])
    assert (
        "the problem 'p1' (How many are 1?): facts['answer'] is {\"right\": \"2\"}, expected"
        in str(error.value)
    )
    assert "raise data.tolerate_bad_rows" in str(error.value)


def test_tolerated_problems_are_reported_and_not_refused(tmp_path: Path) -> None:
    report = report_of_answers(tmp_path, ["1", None, "3"], data={"tolerate_bad_rows": 1})
    assert "earns 1 in 2 of 3 problems" in report[0]
    assert report[1].startswith(
        "1 problem cannot be solved (tolerated: 1): the problem 'p1' (How many are 1?): "
    )


def test_a_bad_fact_of_a_file_is_refused_with_its_question(tmp_path: Path) -> None:
    rows = [{"question": f"{n}?", "answer": True if n == 2 else n} for n in range(5)]
    path = tmp_path / "sums.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    files = "agentfly_core.datasets.files:files"
    data = {"use": files, "train_file": str(path), "train": 3, "validation": 0, "test": 2}
    with pytest.raises(ValueError, match=r"\(2\?\): facts\['answer'\] is true"):
        check_problems(*made(tmp_path, data=data))


def test_a_wrong_answer_that_earns_the_reward_is_reported(tmp_path: Path) -> None:
    report = report_of_answers(tmp_path, ["1", "2"], rewards={f"{HERE}:lenient": 1.0})
    assert "wrong answers earn less in 0 of 4 cases" in report[0]
    assert (
        report[1]
        == "lenient: the wrong answer '' to the problem 'p0' earns 1, expected less than 1."
    )


@pytest.mark.parametrize("name", ["judge", "judge_with_examples"])
def test_a_judge_is_skipped_and_reported(tmp_path: Path, name: str) -> None:
    rewards = {EXACT: 1.0, f"{HERE}:{name}": 1.0}
    report = report_of_answers(tmp_path, ["1", "2"], rewards=rewards, evaluate={"goal": EXACT})
    assert report[1] == (
        f"{name}: not checked, because it uses a service (retries or concurrency is set)."
    )
    assert ASKED == []


def test_the_oracle_does_not_call_a_judge_of_an_environment(tmp_path: Path) -> None:
    right = "tests.support.capitals:right"
    settings = {**CAPITALS, "rewards": {right: 1.0, f"{HERE}:judge_of_the_atlas": 1.0}}
    settings |= {"evaluate": {"goal": right}, "warm_start": {"demonstrations": f"{HERE}:atlas"}}
    report = check_problems(*made(tmp_path, **settings))
    assert report[1] == "The oracle solves 2 of 3 sampled problems."
    assert ASKED == []


def test_a_reward_without_examples_or_an_oracle_is_reported(tmp_path: Path) -> None:
    (line,) = report_of_answers(tmp_path, ["1", "2"], rewards={f"{HERE}:any_answer": 1.0})
    assert line.startswith("any_answer: not checked, because warm_start.demonstrations")


def test_problems_that_the_oracle_fails_are_reported(tmp_path: Path) -> None:
    shown = {"demonstrations": f"{HERE}:atlas"}
    report = check_problems(*made(tmp_path, **{**CAPITALS, "warm_start": shown}))
    assert report == [
        "The oracle solves 2 of 3 sampled problems.",
        "An idle policy solves 0 of 3 sampled problems.",
        "The oracle does not solve 'Kenya': agentfly play tiny --policy oracle --split train "
        "--problem Kenya",
    ]


def test_problems_that_an_idle_policy_solves_are_reported(tmp_path: Path) -> None:
    settings = {**CAPITALS, "rewards": {f"{HERE}:any_answer": 1.0}}
    shown = {"demonstrations": f"{HERE}:atlas"}
    report = check_problems(*made(tmp_path, **{**settings, "warm_start": shown}))
    assert report[1] == "An idle policy solves 3 of 3 sampled problems."
    assert "An idle policy solves 'Chile': check the reward." in report


def test_a_reward_that_fails_in_all_problems_stops_the_check(tmp_path: Path) -> None:
    shown = {"demonstrations": f"{HERE}:atlas"}
    settings = {**CAPITALS, "rewards": {f"{HERE}:words": 1.0}, "warm_start": shown}
    with pytest.raises(GateClosed, match=r"\(episodes: 3\).*words: got 'good' \(str\), exp"):
        check_problems(*made(tmp_path, **settings))


def test_a_reward_reaches_1_up_to_rounding(tmp_path: Path) -> None:
    settings = {**CAPITALS, "rewards": {f"{HERE}:tenths": 1.0}}
    shown = {"demonstrations": f"{HERE}:atlas"}
    report = check_problems(*made(tmp_path, **{**settings, "warm_start": shown}))
    assert report[0] == "The oracle solves 3 of 3 sampled problems."


def test_a_fact_that_one_problem_lacks_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = {"use": f"{HERE}:one_without_topic", "train": 100, "validation": 0, "test": 1}
    line = (
        "1 of 100 train problems lacks the fact 'topic', which all other problems have; the first "
        "is p99."
    )
    assert check_problems(*made(tmp_path, data=data))[0] == line
    assert line in caplog.messages


def test_a_report_is_stored_and_recomputed_for_other_rewards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = ["1", "2"]
    first = report_of_answers(tmp_path, right)
    monkeypatch.setattr(solvable, "WRONG", 1)
    assert report_of_answers(tmp_path, right) == first
    (qa,) = report_of_answers(tmp_path, right, rewards={"agentfly_core.rewards.qa:qa_em": 1.0})
    assert qa.startswith("qa_em: ") and qa.endswith("on 1 sampled problem.")


def test_a_damaged_report_is_recomputed(tmp_path: Path) -> None:
    report = report_of_answers(tmp_path, ["1", "2"])
    (path,) = tmp_path.rglob("artifacts/solvable/*.json")
    path.write_text("{")
    assert report_of_answers(tmp_path, ["1", "2"]) == report
    assert json.loads(path.read_text())["report"] == report
