"""Questions that two searches lead to, and the encyclopaedia that is searched."""

import json
import runpy
from collections import defaultdict
from itertools import combinations
from pathlib import Path

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from agentfly_core.authoring.tool import Tool
from agentfly_core.datasets.players import filled
from agentfly_core.inference.random_policy import random_policy
from agentfly_core.inference.scripted import ScriptedPolicy
from agentfly_core.recipes.search import demonstrations
from agentfly_core.recipes.search.dataset import QUESTIONS, encyclopaedia
from agentfly_core.records.trajectory import Trajectory
from agentfly_core.rewards.qa import qa_em
from agentfly_core.tools.answer import answer
from agentfly_core.tools.search import rows
from benchmarks.tasks import shuffled
from tests.support import task_checks
from tests.support.project import ROOT
from tests.support.ready_made_parts import search_of

pytestmark = pytest.mark.slow

CORPUS = str(ROOT / "data/raw/encyclopaedia.jsonl")
PAGES = {row["id"]: row for row in rows(CORPUS)}
SPLITS = encyclopaedia(0, 1920, 140, 100, CORPUS)
HUNDRED = SPLITS["test"]
SEARCH = search_of(Path(CORPUS), results=2)


@pytest.fixture(scope="module")
def tokenizer(nano: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(nano)


async def answered(
    policy: ScriptedPolicy, tokenizer: PreTrainedTokenizerBase, search: Tool = SEARCH
) -> list[Trajectory]:
    return await task_checks.played(HUNDRED, policy, [search, answer], tokenizer)


def test_the_file_can_be_generated_again() -> None:
    made = runpy.run_path(str(ROOT / "data/encyclopaedia.py"))["text"]()
    assert made == Path(CORPUS).read_text()


def test_the_second_page_has_the_answer() -> None:
    for problem in SPLITS["train"]:
        kind, fields = filled(problem.prompt, QUESTIONS, "recipes.search")
        about, person = (PAGES[page] for page in problem.facts["pages"])
        assert (about["title"], about[fields["role"]]) == (fields["title"], person["title"])
        assert person["title"] in about["text"]
        assert person[kind] == problem.facts["answer"]
        assert person[kind] in person["text"]


def test_no_question_contains_text_of_a_page() -> None:
    for problem in HUNDRED:
        texts = {PAGES[page]["text"] for page in problem.facts["pages"]}
        assert not any(text in json.dumps(problem.facts) + problem.prompt for text in texts)
        assert problem.facts["answer"] not in problem.prompt


def test_splits_never_share_a_page() -> None:
    pages_of: dict[str, set[str]] = defaultdict(set)
    for seed in (0, 1):
        for split, problems in encyclopaedia(seed, 1000, 200, 200, CORPUS).items():
            pages_of[split] |= {page for problem in problems for page in problem.facts["pages"]}
    assert all(len(pages) > 50 for pages in pages_of.values())
    for one, other in combinations(pages_of.values(), 2):
        assert not one & other


def test_the_seed_decides_the_problems() -> None:
    first, again, other = (encyclopaedia(seed, 20, 5, 5, CORPUS) for seed in (3, 3, 4))
    assert first == again != other


def test_too_many_problems_are_refused() -> None:
    with pytest.raises(ValueError, match=r"data\.test is 241, .* 240 "):
        encyclopaedia(0, 10, 10, 241, CORPUS)


async def test_the_oracle_answers_each_question_with_two_searches(
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    played = await answered(demonstrations.search(HUNDRED, 0, 0.0), tokenizer)
    assert await task_checks.success(played, qa_em) == 1.0
    assert {len(trajectory.turns) for trajectory in played} == {3}


async def test_random_calls_answer_almost_no_question(tokenizer: PreTrainedTokenizerBase) -> None:
    assert await task_checks.success(await answered(random_policy, tokenizer), qa_em) <= 0.02
    assert await task_checks.success(await answered(task_checks.wanderer, tokenizer), qa_em) <= 0.1


def test_an_answer_without_a_page_is_rarely_right() -> None:
    assert task_checks.best_constant(HUNDRED) <= 0.1
    assert task_checks.best_unread(SPLITS["train"], HUNDRED, "kind") <= 0.1


async def test_the_oracle_is_wrong_with_shuffled_pages(
    tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    corpus = tmp_path / "shuffled.jsonl"
    corpus.write_text("".join(f"{json.dumps(row)}\n" for row in shuffled(rows(CORPUS))))
    search = search_of(corpus, results=2)
    oracle = demonstrations.search(HUNDRED, 0, 0.0)
    played = await answered(oracle, tokenizer, search)
    assert await task_checks.success(played, qa_em) <= 0.15
    answers = [trajectory.answer for trajectory in played]
    assert "unknown" not in answers


async def test_spoilt_episodes_have_valid_calls_and_are_all_wrong(
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    played = await answered(demonstrations.search(HUNDRED, 0, 1.0), tokenizer)
    assert await task_checks.success(played, qa_em) == 0.0
    assert not any(o.error for trajectory in played for o in trajectory.observations)
    assert {len(trajectory.turns) for trajectory in played} == {1, 2, 3}


async def test_the_given_share_is_spoilt(tokenizer: PreTrainedTokenizerBase) -> None:
    played = await answered(demonstrations.search(HUNDRED, 0, 0.4), tokenizer)
    assert await task_checks.success(played, qa_em) == pytest.approx(0.6, abs=0.12)


async def test_an_unknown_question_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'Who\?', .*recipes\.search"):
        filled("Who?", QUESTIONS, "recipes.search")
