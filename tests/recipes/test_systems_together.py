"""Firms with shared and own codes, the stage that masks them, demonstrations and the program."""

import json
import re
from collections import defaultdict
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from agentfly_core.recipes.mask_search.ramp import ramp
from agentfly_core.recipes.systems_together.corpus import CODES, pages
from agentfly_core.recipes.systems_together.demonstrations import both_ways
from agentfly_core.recipes.systems_together.program import search
from agentfly_core.records.trajectory import Problem, ToolCall
from tests.support import task_checks
from tests.support.ready_made_parts import search_of

pytestmark = pytest.mark.slow

PAGES = pages(seed=911)
PROBLEMS = [
    Problem(row["id"], row["prompt"], row) for row in ramp(PAGES, seed=911, masks=1)["test"]
]
FIRM = re.compile(r"In city (\d+), code (\d+)\.")


def test_half_of_the_cities_have_one_code() -> None:
    codes = defaultdict[str, set[str]](set)
    for page in PAGES:
        if match := FIRM.fullmatch(page["text"]):
            codes[match[1]].add(match[2])
    assert sorted(map(len, codes.values())) == [1] * 4 + [len(CODES)] * 4


def test_each_firm_has_one_mask_for_its_code() -> None:
    assert len(PROBLEMS) == 48
    masked = r"Fill in: In city \d\d, code \[mask\]\. This is about firm \d{3}\."
    for problem in PROBLEMS:
        assert re.fullmatch(masked, problem.prompt)
        assert problem.facts["answers"][0] in CODES


async def test_demonstrations_find_each_code_on_another_page(nano: Path, tmp_path: Path) -> None:
    file = tmp_path / "pages.jsonl"
    file.write_text("\n".join(map(json.dumps, PAGES)))
    tool, shown = search_of(file, results=1, hides="source"), PROBLEMS[:24]
    policy = both_ways(shown, 0)
    played = await task_checks.played(shown, policy, [tool], AutoTokenizer.from_pretrained(nano))
    assert all(len(one.observations) == 1 for one in played)
    for one in played:
        assert one.answer == one.problem.facts["answers"][0]
        query = re.findall(r"\d+", one.problem.prompt)[-1]
        assert one.observations[0].content == search(PAGES, query, one.problem.facts["source"])


async def test_the_program_shows_what_the_tool_shows(tmp_path: Path) -> None:
    file = tmp_path / "pages.jsonl"
    file.write_text("\n".join(map(json.dumps, PAGES)))
    tool, problem = search_of(file, results=1, hides="source"), Problem("", "", {"source": "0007"})
    numbers = [page["title"].split()[-1] for page in PAGES[:8]]
    for query in (*numbers, "0", ""):
        shown = await tool.answer(ToolCall("search", {"query": query}), {Problem: problem})
        assert search(PAGES, query, "0007") == shown.content


def test_the_program_finds_nothing_on_the_hidden_page() -> None:
    firm = next(page for page in PAGES if page["title"].startswith("firm"))
    number = firm["title"].split()[-1]
    assert search([firm], number, "").startswith("[")
    assert search([firm], number, firm["id"]) == "Nothing was found."
