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
from agentfly_core.records.trajectory import Problem
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
    assert sorted(map(len, codes.values())) == [1] * 12 + [len(CODES)] * 12


def test_each_firm_has_one_mask_for_its_code() -> None:
    assert len(PROBLEMS) == 96
    masked = r"Fill in: In city \d\d, code \[mask\]\. This is about firm \d{4}\."
    for problem in PROBLEMS:
        assert re.fullmatch(masked, problem.prompt)
        assert problem.facts["answers"][0] in CODES


@pytest.mark.parametrize(("spoilt", "right"), [(0.0, 24), (1.0, 0)])
async def test_demonstrations_find_each_code_on_another_page(
    nano: Path, tmp_path: Path, spoilt: float, right: int
) -> None:
    file = tmp_path / "pages.jsonl"
    file.write_text("\n".join(map(json.dumps, PAGES)))
    tool, shown = search_of(file, results=1, hides="source"), PROBLEMS[:24]
    policy = both_ways(shown, 0, spoilt=spoilt)
    played = await task_checks.played(shown, policy, [tool], AutoTokenizer.from_pretrained(nano))
    assert sum(one.answer in one.problem.facts["answers"] for one in played) == right
    assert all(len(one.observations) == 1 for one in played)
    for one in played:
        query = re.findall(r"\d+", one.problem.prompt)[-1]
        assert one.observations[0].content == search(PAGES, query, one.problem.facts["source"])


def test_the_program_finds_nothing_on_the_hidden_page() -> None:
    firm = next(page for page in PAGES if page["title"].startswith("firm"))
    assert search(PAGES, firm["title"].split()[-1], "").startswith("[")
    only = [firm]
    assert search(only, firm["title"], firm["id"]) == "Nothing was found."
