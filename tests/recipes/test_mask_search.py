"""Masks that other pages fill: the built files, the scripted team, and the reward under attack."""

import json
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from agentfly_core import call_text
from agentfly_core.authoring.scoring import score
from agentfly_core.authoring.tool import Tool
from agentfly_core.recipes.mask_search import demonstrations
from agentfly_core.recipes.mask_search.corpus import encyclopaedia, families, read
from agentfly_core.recipes.mask_search.dataset import mask_search
from agentfly_core.recipes.mask_search.ramp import MASK, SPLITS, entities, questions, ramp, write
from agentfly_core.recipes.mask_search.rewards import fills, written
from agentfly_core.records.trajectory import Problem, Trajectory
from agentfly_core.testing import trajectory, turn
from agentfly_core.tools.answer import answer
from agentfly_core.tools.search import Row
from tests.support import task_checks
from tests.support.project import ROOT
from tests.support.ready_made_parts import search_of

pytestmark = pytest.mark.slow

SEED = 911
PAGES = encyclopaedia(SEED)
RAMP = ramp(PAGES, SEED, masks=2, least=2)
QUESTIONS = questions(PAGES, SEED, persons=12)


TEXTS = [f"{page['title']}: {page['text']}" for page in PAGES]


def search_for(number: int) -> str:
    return call_text("search", query=str(number))


def problem_of(row: dict) -> Problem:
    return Problem(row["id"], row["prompt"], {key: row[key] for key in row.keys() - {"id"}})


HUNDRED = [
    problem_of(row)
    for made, size in ((RAMP, 70), (QUESTIONS, 30))
    for row in random.Random(SEED).sample(made["test"], size)
]


@pytest.fixture(scope="module")
def tokenizer(nano: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(nano)


def searched(folder: Path, pages: list[Row]) -> Tool:
    write(folder, pages, {})
    return search_of(folder / "pages.jsonl", results=1, hides="source")


async def solved(tokenizer: PreTrainedTokenizerBase, search: Tool) -> float:
    team = demonstrations.team(HUNDRED, 0)
    played = await task_checks.played(HUNDRED, team, [search, answer], tokenizer)
    return sum([one == 1 for one in [await value(each) for each in played]]) / len(played)


async def value(played: Trajectory) -> float:
    [scored] = await score([played], {fills: 1.0})
    assert isinstance(scored.reward, float)
    return scored.reward


def test_every_fact_is_on_two_pages() -> None:
    for family in families(SEED):
        pages = [text for text in TEXTS if f"person {family.person}" in text]
        for fact in (f"firm {family.firm}", f"badge {family.badge}"):
            assert sum(fact in text for text in pages) == 2


def test_a_question_needs_two_searches() -> None:
    for row in QUESTIONS["test"]:
        [family] = [one for one in families(SEED) if f" {one.firm}?" in row["prompt"]]
        [leading] = [text for text in TEXTS if f"firm {family.firm} " in text]
        seen = f"[1] {leading}"
        assert demonstrations.reply(row["prompt"], []) == search_for(family.firm)
        assert demonstrations.reply(row["prompt"], [seen]) == search_for(family.person)
        assert "badge" not in leading


def test_splits_share_no_name_under_any_seed() -> None:
    names = {
        split: {
            name
            for seed in (SEED, 912)
            for f in families(seed)
            if f.split == split
            for name in f[1:]
        }
        for split in SPLITS
    }
    assert len(names["train"] | names["val"] | names["test"]) == sum(map(len, names.values()))


def test_masks_are_different_names_of_the_page_alone() -> None:
    pages = {page["id"]: page for page in PAGES}
    for row in (row for rows in RAMP.values() for row in rows):
        page = pages[row["source"]]
        assert row["prompt"].count(MASK) == row["masks"] == len({*row["answers"]})
        text = row["prompt"]
        for one in row["answers"]:
            whole = re.compile(rf"\b{one}\b")
            assert len(whole.findall(page["text"])) == 1
            assert not whole.search(page["title"]) and not whole.search(text)
            text = text.replace(MASK, one, 1)
        assert text == f"Fill in: {page['text']} This is about {page['title']}."


@pytest.mark.long
def test_the_committed_files_are_those_of_the_stage(tmp_path: Path) -> None:
    pages = encyclopaedia(0)
    write(tmp_path, pages, {"ramp": ramp(pages, 0, 2, 2), "qa": questions(pages, 0, 24)})
    made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert len(made) == 7
    assert made == {name: (ROOT / "data/ramp" / name).read_bytes() for name in made}


def test_a_folder_of_texts_is_a_corpus(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/lima.md").write_text("# Lima\nThe capital of Peru has 12 districts by Rimac.")
    (tmp_path / "peru.txt").write_text("Peru\nIts capital Lima has 12 districts.\nIt is old.")
    pages = read(str(tmp_path))
    assert [(page["id"], page["title"]) for page in pages] == [("a/lima", "Lima"), ("peru", "Peru")]
    assert entities(pages[0], pages) == ["Peru", "12"]
    assert [row["masks"] for rows in ramp(pages, 0, 4).values() for row in rows] != []
    assert not any(ramp(pages, 0, 4, least=3).values())


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"has no \.txt or \.md files"):
        read(str(tmp_path))


def test_problems_are_those_of_the_chosen_formats() -> None:
    made = mask_search(3, 100, 20, 60, ROOT / "data/ramp", ("qa", "ramp"))
    assert made == mask_search(3, 100, 20, 60, ROOT / "data/ramp", ("qa", "ramp"))
    assert {p.facts["kind"] for p in made["test"]} == {"qa", "ramp"}
    only = mask_search(3, 10, 2, 6, ROOT / "data/ramp", ("qa",))
    assert {p.facts["kind"] for p in only["train"]} == {"qa"}


def test_files_that_are_not_built_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"ramp_train\.jsonl cannot be read"):
        mask_search(0, 1, 1, 1, tmp_path)


async def test_the_team_needs_the_pages(tokenizer: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    assert await solved(tokenizer, searched(tmp_path / "own", PAGES)) >= 0.95
    nothing: list[Row] = [{"id": "0", "title": "Nothing", "text": "Empty."}]
    assert await solved(tokenizer, searched(tmp_path / "none", nothing)) <= 0.05


async def test_the_team_is_wrong_where_facts_are_shuffled(
    tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    other = {page["title"]: page["text"] for page in encyclopaedia(SEED + 1)}
    pages = [{**page, "text": other[page["title"]]} for page in PAGES]
    assert await solved(tokenizer, searched(tmp_path, pages)) <= 0.05


async def test_demonstrations_are_accepted_when_they_are_right(
    tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    search = searched(tmp_path, PAGES)
    corpus = str(tmp_path / "pages.jsonl")
    team = demonstrations.team(HUNDRED, 0, spoilt=0.9, corpus=corpus)
    played = await task_checks.played(HUNDRED, team, [search, answer], tokenizer)
    assert {await value(one) for one in played} == {1.0}
    longer = [len(one.turns) for one in played]
    assert max(longer) > min(longer)


@pytest.mark.parametrize("mistake", ["plan", "observe"])
def test_a_mistake_changes_the_replies(mistake: str) -> None:
    row = RAMP["test"][0]
    seen = ["[9] book 1: Nothing."] * (demonstrations.MOST_QUERIES * (mistake == "observe"))
    prompt = row["prompt"]
    assert demonstrations.reply(prompt, seen, mistake) != demonstrations.reply(prompt, seen)


MASKED = Problem(
    "p",
    f"Fill in: Amber Mills: Founded by {MASK}, born in {MASK}.",
    {"answers": ["Anna Berg", "Peru"]},
)
TEXT = "Founded by Anna Berg, born in Peru, living in Cork."


async def given(text: str, problem: Problem = MASKED) -> float:
    played = trajectory(turn([1], {2: 0.0}), problem=problem, answered=text)
    [scored] = await score([played], {fills: 1.0})
    return float(scored.rewards["fills"])


ATTACKS = {
    "enumerate": written(["Anna Berg", "Peru", "Chile", "Cork", "Boris Dahl"]),
    "unfilled": MASKED.prompt,
    "verbatim": TEXT,
    "k+1 answers": written(["Anna Berg", "Peru", "Peru"]),
    "repeated": written(["Anna Berg", "Anna Berg"]),
    "look-alikes": written(["\u0410nna Berg", "P\u0435ru"]),
    "empty": "",
    "one long fill": written([TEXT, "Peru and " * 5]),
    "swapped": written(["Peru", "Anna Berg"]),
}


@pytest.mark.parametrize("attack", ATTACKS)
async def test_no_attack_is_paid(attack: str) -> None:
    assert await given(ATTACKS[attack]) <= 0.0


@pytest.mark.parametrize(
    ("text", "paid"),
    [
        ("Anna Berg || Peru", 1.0),
        ("anna  berg||PERU", 1.0),
        ("Anna Berg || Chile", 0.5),
        ("Boris Dahl || Chile", 0.0),
        ("Anna Berg", -1.0),
        ("Anna Berg || ", -1.0),
    ],
)
async def test_right_fills_are_paid_by_their_share(text: str, paid: float) -> None:
    assert await given(text) == paid


async def test_attacks_on_single_masks_are_not_paid() -> None:
    one = replace(MASKED, facts={"answers": ["Peru"]})
    for text in ("Peru || Chile", TEXT, MASK, "Anna Berg Peru", "\u0420eru", "Peru || Peru"):
        assert await given(text, one) <= 0.0, text
    assert await given("Peru", one) == 1.0


def test_rows_are_json_with_plain_letters() -> None:
    for line in (ROOT / "data/ramp/ramp_test.jsonl").read_text().splitlines()[:20]:
        assert json.loads(line)["kind"] == "ramp"
