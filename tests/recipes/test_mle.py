"""Competitions, their boards and ranks, the tools, and folders in MLE-Dojo's layout."""

import asyncio
import math
import random
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import pandas as pd
import pytest

pytest.importorskip("sklearn")

from agentfly_core import Observation, Problem, ToolCall, ToolError
from agentfly_core.authoring.tool import Tool
from agentfly_core.recipes.mle import environment
from agentfly_core.recipes.mle.competitions import SAMPLE, human_rank
from agentfly_core.recipes.mle.dataset import competitions, dojo
from agentfly_core.recipes.mle.environment import LIMITS, MLE
from agentfly_core.recipes.mle.folders import read
from agentfly_core.recipes.mle.generated import ACCURACY, KINDS, RMSE, competition
from agentfly_core.recipes.mle.pipelines import DEGREES, LADDER, MODELS, STRENGTHS, program
from agentfly_core.recipes.mle.rewards import human_rank as rewarded
from agentfly_core.recipes.mle.tools import (
    execute_code,
    fit_pipeline,
    request_info,
    validate_code,
)
from agentfly_core.records.trajectory import Score
from agentfly_core.testing.trajectories import trajectory
from tests.support.paired_outcomes import sign_test

COPY = "open('submission.csv', 'w').write(open('sample_submission.csv').read())"


@pytest.fixture(scope="module")
def problem() -> Problem:
    (one,) = competitions(seed=41, train=1, validation=0, test=0)["train"]
    return one


@pytest.fixture
async def mle(problem: Problem, sandbox: None) -> MLE:
    opened = MLE()
    await opened.reset(problem)
    return opened


async def called(tool: Tool, mle: MLE, **arguments: object) -> Observation:
    return await tool.answer(ToolCall(tool.name, arguments), {MLE: mle})


def truth(mle: MLE) -> str:
    """Code that submits the answers."""
    text = mle.task.answers.to_csv(index=False)
    return f"open('submission.csv', 'w').write({text!r})"


def brute_force(board: list[float], score: float, higher: bool, formula: str) -> float:
    """Walk down the sorted board to the first place that the score ties or beats."""
    if not math.isfinite(score) or not board:
        return 0.0
    place, count = 1, len(board)
    for other in sorted(board, reverse=higher):
        if score == other or (score > other) == higher:
            break
        place += 1
    return (count - place + 1) / count if formula == "code" else max(0.0, 1 - place / count)


@pytest.mark.parametrize("formula", ["code", "paper"])
@pytest.mark.parametrize("metric", [ACCURACY, RMSE])
def test_ranks_equal_brute_force(metric, formula):
    draw = random.Random(42)
    for _ in range(2000):
        # few different values make many ties
        board = [draw.randint(0, 6) / 4 for _ in range(draw.randint(0, 12))]
        score = draw.choice([draw.randint(-1, 8) / 4, math.nan, math.inf, -math.inf])
        expected = brute_force(board, score, metric.higher_is_better, formula)
        assert human_rank(board, score, metric, formula) == pytest.approx(expected)


def test_a_board_of_twelve_ranks_as_published():
    board = [n / 12 for n in range(12)]
    places = [("code", 1.0, 1.0), ("paper", 1.0, 11 / 12), ("code", 0.0, 1 / 12), ("paper", 0.0, 0)]
    for formula, score, expected in places:
        assert human_rank(board, score, ACCURACY, formula) == pytest.approx(expected)
    assert human_rank([], 1.0, ACCURACY) == 0
    assert human_rank([math.nan, 0.5], 0.4, ACCURACY) == 0


def test_a_board_has_twelve_baselines_with_many_scores(problem):
    board = problem.facts["leaderboard"]
    assert len(board) == 12
    assert len({*board.values()}) >= 8


def test_every_kind_makes_the_same_competition_again():
    for kind in KINDS:
        made = competition(kind, 5)
        competition.cache_clear()
        again = competition(kind, 5)
        assert made.files == again.files and made.public == again.public
        assert made.files != competition(kind, 6).files
        assert "target" not in made.files["test.csv"].partition(b"\n")[0].decode()
        assert len(made.public) == len(made.answers) // 2


def test_splits_share_no_competition():
    splits = competitions(seed=1, train=2, validation=1, test=1, kinds=["linear", "text"])
    problems = [problem for split in splits.values() for problem in split]
    assert len({problem.id for problem in problems}) == 4
    with pytest.raises(ValueError, match=r"data\.kinds: got"):
        competitions(seed=1, train=1, validation=0, test=0, kinds=["chess"])


async def test_the_best_submission_is_rewarded_once(mle):
    answers = await called(execute_code, mle, code=truth(mle))
    assert (answers.error, answers.reward) == (False, 1.0)
    again = await called(execute_code, mle, code=truth(mle) + " ")
    copied = await called(execute_code, mle, code=COPY)
    assert (again.reward, copied.reward) == (0.0, 0.0)
    score = await rewarded.score(trajectory(), {MLE: mle})
    assert isinstance(score, Score)
    assert score.value == 1.0
    assert score.parts == {"code": 1.0, "paper": pytest.approx(11 / 12), "submissions": 3.0}


async def test_steps_add_up_to_the_terminal_reward(mle):
    draw, total = random.Random(3), 0.0
    for noise in (3.0, 1.0, 0.3, 2.0, 0.0):
        given = mle.task.answers.assign(
            target=[value + draw.gauss(0, noise) for value in mle.task.answers["target"]]
        )
        total += mle.submit(given.to_csv(index=False).encode())[1]
    assert total == pytest.approx(mle.rank) and mle.rank == 1.0


async def test_a_copied_sample_earns_nothing(mle):
    copied = await called(execute_code, mle, code=COPY)
    assert (copied.error, copied.reward, mle.rank) == (False, 0.0, 0.0)


async def test_observations_show_the_public_score_only(mle):
    public, private = mle.task.scores(mle.task.files[SAMPLE])
    copied = await called(execute_code, mle, code=COPY)
    assert f"{public:.4f}" in copied.content
    assert f"{private:.4f}" not in copied.content
    validated = await called(validate_code, mle, code=COPY)
    assert "valid" in validated.content and f"{public:.4f}" not in validated.content
    told = await called(request_info, mle, topic="all")
    assert mle.task.description in told.content and "sample_submission.csv:" in told.content


async def test_a_private_row_changes_no_observation(mle):
    seen = []
    for value in (0, 7):
        given = mle.task.answers.copy()
        given.loc[~given["id"].isin(mle.task.public), "target"] = value
        code = f"open('submission.csv', 'w').write({given.to_csv(index=False)!r})"
        seen.append(await called(execute_code, mle, code=code))
    assert seen[0].content == seen[1].content
    assert "Public score" in seen[0].content


async def test_code_runs_once_for_all_episodes(mle, problem, monkeypatch):
    started = []
    run = environment.run

    async def counted(code, *given, **named):
        started.append(code)
        return await run(code, *given, **named)

    monkeypatch.setattr(environment, "run", counted)
    other = MLE()
    await other.reset(problem)
    code = COPY + "\nprint(__import__('os').urandom(8))"
    printed = await asyncio.gather(mle.run(code), other.run(code))
    assert printed[0] == printed[1] == await mle.run(code)
    assert started == [code]


@pytest.mark.usefixtures("sandbox")
async def test_environments_beside_each_other_see_nothing(problem):
    code = COPY + (
        "\nimport os, pathlib\nn = {number}\n"
        "for folder in ('.', '/tmp'): pathlib.Path(folder, f'nonce-{{n}}').touch()\n"
        "print(sorted(p for f in ('.', '/tmp') for p in os.listdir(f) if 'nonce' in p))"
    )
    opened = [MLE() for _ in range(8)]
    for one in opened:
        await one.reset(problem)
    results = await asyncio.gather(
        *(one.run(code.format(number=n)) for n, one in enumerate(opened))
    )
    assert [printed for printed, _ in results] == [f"['nonce-{n}', 'nonce-{n}']" for n in range(8)]


async def test_a_snapshot_restores_the_ranks(mle):
    before = await mle.snapshot()
    await called(execute_code, mle, code=truth(mle))
    assert mle.rank > 0
    await mle.restore(before)
    assert (mle.rank, mle.public) == (0.0, None)


async def test_every_pipeline_compiles_and_one_runs(mle):
    for model in MODELS:
        for strength in STRENGTHS:
            for degree in DEGREES:
                compile(program("standard", model, strength, degree), "pipeline", "exec")
    fitted = await called(fit_pipeline, mle, scaler="standard", model="trees", strength=4, degree=1)
    assert not fitted.error and fitted.reward
    wrong = await called(fit_pipeline, mle, scaler="none", model="trees", strength=9, degree=1)
    assert "expected 1 to 4" in wrong.content


METRIC = """
from mledojo.metrics.base import CompetitionMetrics, InvalidSubmissionError

class OddMetrics(CompetitionMetrics):
    def __init__(self, higher_is_better: bool = False):
        super().__init__(higher_is_better)

    def evaluate(self, y_true, y_pred):
        return float((y_true["price"] - y_pred["price"]).abs().max())

    def validate_submission(self, submission, ground_truth):
        if (submission["price"] < 0).any():
            raise InvalidSubmissionError(f"secret {ground_truth['price'].tolist()}")
        return "Submission is valid."
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A competition of MLE-Dojo: a lower score is better, ids are texts."""
    root = tmp_path / "houses"
    ids = [f"h{n}" for n in range(40)]
    answers = pd.DataFrame({"house": ids, "price": [float(n) for n in range(40)]})
    files = {
        "utils/metric.py": METRIC,
        "info/description.txt": "Predict prices.",
        "info/private_leaderboard.csv": "rank,score\n1,0.5\n2,3.0\n3,30.0\n",
        "data/public/train.csv": "house,rooms,price\na,1,2.0\n",
        "data/public/sample_submission.csv": answers.assign(price=50.0).to_csv(index=False),
        "data/private/test_answer.csv": answers.to_csv(index=False),
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


async def test_a_folder_of_mle_dojo_is_a_competition(folder):
    (made,) = dojo(seed=0, train=0, validation=0, test=1, folder=folder.parent)["test"]
    mle = MLE()
    await mle.reset(made)
    assert made.facts["leaderboard"] == {"1": 0.5, "2": 3.0, "3": 30.0}
    assert "Predict prices." in made.prompt
    assert sorted(mle.task.files) == ["sample_submission.csv", "train.csv"]
    given = mle.task.answers.copy()
    given["price"] += 2.0
    assert mle.submit(given.to_csv(index=False).encode()) == (2.0, pytest.approx(2 / 3))
    given["price"] = -1.0
    with pytest.raises(ToolError, match="InvalidSubmissionError") as refused:
        mle.submit(given.to_csv(index=False).encode())
    assert "secret" not in str(refused.value)
    assert "mledojo" not in sys.modules
    read.cache_clear()
    assert read(made.facts["folder"]).metric.name == "OddMetrics"


async def test_a_folder_without_answers_is_refused(folder):
    (folder / "data/private/test_answer.csv").unlink()
    with pytest.raises(ValueError, match=r"run its utils/prepare\.py first"):
        dojo(seed=0, train=0, validation=0, test=1, folder=folder.parent)
    with pytest.raises(ValueError, match="has 1 competitions"):
        dojo(seed=0, train=1, validation=0, test=1, folder=folder.parent)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.usefixtures("sandbox")
async def test_the_ladder_rises_on_fresh_competitions(monkeypatch):
    monkeypatch.setattr(environment, "LIMITS", replace(LIMITS, wall=600.0, cpu=120))
    problems = competitions(seed=44, train=0, validation=0, test=24)["test"]
    ranks: dict[str, list[float]] = {rung: [] for rung in LADDER}
    for rung, code in LADDER.items():
        for problem in problems:
            mle = MLE()
            await mle.reset(problem)
            _, submission = await mle.run(code)
            mle.submit(submission)
            ranks[rung].append(mle.rank)
    for worse, better in pairwise(ranks.values()):
        assert fmean(worse) < fmean(better), ranks
        assert sign_test(worse, better) < 0.01, ranks
    assert {*ranks["copy"]} == {0.0}
    assert fmean(ranks["ensemble"]) >= 0.75, ranks
