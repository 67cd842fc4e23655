"""Firms with shared and own codes, the stage that masks them, and demonstrations of both ways."""

import json
import re
from collections import defaultdict
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from agentfly_core.recipes.mask_search.ramp import ramp
from agentfly_core.recipes.systems_together.corpus import CODES, pages
from agentfly_core.recipes.systems_together.demonstrations import both_ways
from agentfly_core.records.trajectory import Problem
from tests.support import task_checks
from tests.support.ready_made_parts import search_of

pytestmark = pytest.mark.slow

PAGES = pages(seed=911)
FIRM = re.compile(r"In city (\d+), code (\d+)\.")


@pytest.fixture(scope="module")
def problems() -> list[Problem]:
    """The masks of the test split."""
    rows = ramp(PAGES, seed=911, masks=1)["test"]
    return [Problem(row["id"], row["prompt"], row) for row in rows]


def test_half_of_the_cities_have_one_code() -> None:
    codes = defaultdict[str, set[str]](set)
    for page in PAGES:
        if match := FIRM.fullmatch(page["text"]):
            codes[match[1]].add(match[2])
    assert len(codes) == 24
    assert sorted(map(len, codes.values())) == [1] * 12 + [len(CODES)] * 12


def test_each_firm_has_one_mask_for_its_code(problems: list[Problem]) -> None:
    assert len(problems) == 96
    for problem in problems:
        assert re.fullmatch(
            r"Fill in: In city \d\d, code \[mask\]\. This is about firm \d{4}\.", problem.prompt
        )
        assert problem.facts["answers"][0] in CODES


async def test_demonstrations_find_each_code_on_another_page(
    problems: list[Problem], nano: Path, tmp_path: Path
) -> None:
    file = tmp_path / "pages.jsonl"
    file.write_text("\n".join(map(json.dumps, PAGES)))
    search = search_of(file, results=1, hides="source")
    tokenizer = AutoTokenizer.from_pretrained(nano)
    shown = problems[:24]
    for spoilt, right in ((0.0, 24), (1.0, 0)):
        policy = both_ways(shown, 0, spoilt=spoilt)
        played = await task_checks.played(shown, policy, [search], tokenizer)
        assert sum(one.answer in one.problem.facts["answers"] for one in played) == right
        assert all(len(one.observations) == 1 for one in played)
