"""Buildings of five families: blueprints, scores against formulas by hand, and the plot."""

import json
import random
import runpy
from collections.abc import Sequence

import numpy as np
import pytest

from agentfly_core.authoring.tool import ToolError
from agentfly_core.recipes.blueprint import families
from agentfly_core.recipes.blueprint.builder import build
from agentfly_core.recipes.blueprint.drawing import drawn
from agentfly_core.recipes.blueprint.environment import COMPLETE, Plot, views
from agentfly_core.recipes.blueprint.scoring import assembled, fit
from agentfly_core.recipes.blueprint.world import BLOCKS, Grid, Voxel, VoxelWorld
from agentfly_core.records.trajectory import Problem
from agentfly_core.testing import problems_of
from tests.support.project import ROOT

SEED = 6113


def problems(size: int, **settings: object) -> list[Problem]:
    use = "agentfly_core.recipes.blueprint.dataset:orders"
    return problems_of(use, seed=SEED, train=size, validation=1, test=1, **settings)["train"]


def cells(grid: Grid) -> list[Voxel]:
    return [(int(x), int(y), int(z)) for x, y, z in np.argwhere(grid)]


def filled(target: Grid, block: int) -> Grid:
    """The bounding box of a target, full of one block."""
    grid = np.zeros_like(target)
    grid[tuple(slice(min(axis), max(axis) + 1) for axis in np.nonzero(target))] = block
    return grid


@pytest.mark.slow
def test_gold_scores_1_nothing_0_and_full_boxes_at_most_half() -> None:
    for problem in problems(500):
        parts = dict(problem.facts["parts"])
        target = assembled(parts).target
        assert fit(target, parts).value == 1.0
        assert fit(np.zeros_like(target), parts).value == 0.0
        boxes = [filled(target, int(block)) for block in np.unique(target[target > 0])]
        assert max(fit(one, parts).value for one in boxes) <= 0.5, problem.prompt


def test_each_wrong_block_changes_the_score_by_the_formula() -> None:
    for number, problem in enumerate(problems(50)):
        parts, draw = dict(problem.facts["parts"]), random.Random(number)
        target = assembled(parts).target
        total, count = int(np.count_nonzero(target)), draw.randint(1, 4)
        chosen = draw.sample(cells(target), count)
        outside = draw.sample(cells(target == 0), count)
        less, more, other = target.copy(), target.copy(), target.copy()
        for cell, beside in zip(chosen, outside, strict=True):
            less[cell], more[beside], other[cell] = 0, 2, BLOCKS.index("gold")
        assert fit(less, parts).iou == pytest.approx((total - count) / total)
        assert fit(more, parts).iou == pytest.approx(total / (total + count))
        assert fit(more, parts).extra == pytest.approx(count / total)
        assert fit(other, parts).iou == pytest.approx((total - count) / total)
        # a part is complete if each of its cells has the block that the last line gave it
        wrong = dict.fromkeys(parts, 0)
        for cell in chosen:
            owner = [name for name, lines in parts.items() if drawn(lines)[cell]][-1]
            wrong[owner] += 1
        assert fit(less, parts).wrong == fit(other, parts).wrong == wrong


def test_a_building_may_stand_one_cell_aside() -> None:
    parts = dict(problems(2)[1].facts["parts"])
    target = assembled(parts).target
    assert fit(np.roll(target, (1, -1), (0, 1)), parts).value == 1.0
    assert fit(np.roll(target, 2, 0), parts).value < 0.5


@pytest.mark.slow
def test_the_builder_completes_all_families_without_residue() -> None:
    scaffolded = set()
    for problem in problems(200, survival=True):
        target, plot = (
            assembled(dict(problem.facts["parts"])).target,
            VoxelWorld(problem.facts["stock"]),
        )
        done = build(plot, target)
        assert (done.missing, done.residue) == ({}, []), problem.prompt
        assert np.array_equal(plot.grid, target)
        assert plot.stock is not None and +plot.stock == {"scaffolding": 64}
        scaffolded |= {problem.facts["family"]} if done.scaffolding else set()
    assert scaffolded == {"tower", "pyramid"}


def test_the_parts_follow_from_the_text_of_an_order() -> None:
    made = problems(100)
    assert all(families.parts_of(one.prompt) == dict(one.facts["parts"]) for one in made)
    assert [one.facts["family"] for one in made[:5]] == [*families.FAMILIES]
    with pytest.raises(ValueError, match="expected an order"):
        families.parts_of("Build the castle: side 4; walls brick.")


def test_splits_share_no_sizes() -> None:
    use = "agentfly_core.recipes.blueprint.dataset:orders"
    splits = problems_of(use, seed=SEED, train=300, validation=60, test=60)
    sizes = {split: {one.prompt.partition(";")[0] for one in splits[split]} for split in splits}
    assert not sizes["train"] & (sizes["validation"] | sizes["test"])
    assert not sizes["validation"] & sizes["test"]


@pytest.mark.parametrize(
    ("blueprint", "expected"),
    [
        ("box stone 1 0 0 0 0 1", {(0, 0, 0), (1, 0, 0), (0, 0, 1), (1, 0, 1)}),
        ("line stone 0 0 0 2 0 2", {(0, 0, 0), (1, 0, 1), (2, 0, 2)}),
        ("stairs stone 0 0 0 1 0 1", {(0, 0, 0), (1, 0, 0), (1, 0, 1)}),
        ("stairs stone 0 1 0 0 0 9", {(0, 1, 0), (0, 0, 0), (0, 0, 1)}),
        ("stairs stone 1 0 0 0 0 0", {(0, 0, 0), (1, 0, 0)}),
        ("box ice 0 0 0 0 0 0\nbox ice 2 0 0 2 0 0\nreplace ice stone 0 0 0 1 0 0", {(0, 0, 0)}),
        ("box stone 0 0 0 0 0 0\nmirror x 3", {(0, 0, 0), (3, 0, 0)}),
        ("box stone 0 0 0 1 0 0\nbox air 1 0 0 1 0 0", {(0, 0, 0)}),
    ],
)
def test_a_line_draws_its_cells(blueprint: str, expected: set[Voxel]) -> None:
    stone = cells(drawn(blueprint) == BLOCKS.index("stone"))
    assert {(x - 2, y - 2, z) for x, y, z in stone} == expected


def test_a_hollow_box_has_six_sides() -> None:
    full, hollow = (drawn(f"{form} brick 3 3 0 7 6 3") for form in ("box", "hollow_box"))
    assert np.count_nonzero(full) == 5 * 4 * 4
    assert np.count_nonzero(full) - np.count_nonzero(hollow) == 3 * 2 * 2


@pytest.mark.parametrize(
    ("blueprint", "message"),
    [
        ("box stone 0 0 0 1 1", "Line 1 .* expected one of these forms"),
        ("\nbox butter 0 0 0 1 1 1", "there is no block 'butter'"),
        ("box stone 0 0 0 20 1 1", "the largest coordinates are"),
        ("box stone 0 0 0 1 1 1\n" * 201, "at most 200 are allowed"),
    ],
)
def test_a_wrong_blueprint_is_refused_with_its_line(blueprint: str, message: str) -> None:
    with pytest.raises(ToolError, match=message):
        drawn(blueprint)


def test_stored_facts_keep_the_order_of_parts() -> None:
    for problem in problems(5):
        stored = json.loads(json.dumps(problem.facts, sort_keys=True))
        assert [*dict(stored["parts"])] == [*families.parts_of(problem.prompt)]


async def played(plot: Plot, problem: Problem, lines: Sequence[str]) -> str:
    await plot.reset(problem)
    plot.submit("\n".join(lines))
    return plot.build()


async def test_the_plot_reports_parts_and_missing_blocks() -> None:
    problem, plot = problems(1)[0], Plot()
    parts = dict(problem.facts["parts"])
    await played(plot, problem, [lines for name, lines in parts.items() if name != "door"])
    assert "door: 2 cells are wrong" in plot.inspect() and COMPLETE not in plot.inspect()
    report = await played(plot, problem, [*parts.values(), "box gold 0 0 15 0 0 16"])
    assert "2 blocks are missing" in report and "(0, 0, 15)" in report
    assert COMPLETE in plot.inspect()


async def test_a_snapshot_restores_blueprint_world_and_stock() -> None:
    problem, plot, other = problems(5, survival=True)[4], Plot(), Plot()
    await played(plot, problem, [*dict(problem.facts["parts"]).values()][:1])
    await other.reset(problem)
    await other.restore(await plot.snapshot())
    assert other.blueprint == plot.blueprint != ""
    assert other.world.stock == plot.world.stock and other.inspect() == plot.inspect()
    assert np.array_equal(other.world.grid, plot.world.grid)


def test_views_show_the_nearest_blocks_of_each_side() -> None:
    grid = drawn("box brick 0 0 0 2 1 0\nbox slate 0 0 1 0 0 1\nbox glass 2 1 1 2 1 1")
    assert views(grid).splitlines() == [
        *("south:", "A.G", "BBB", "north:", "G.A", "BBB"),
        *("west:", "GA", "BB", "east:", "AG", "BB"),
        "B brick, G glass, A slate",
    ]


def test_the_picture_is_drawn_by_its_script() -> None:
    drawing = runpy.run_path(str(ROOT / "docs/buildings.py"))["picture"]()
    assert (ROOT / "docs/images/buildings.svg").read_text() == drawing, "run docs/buildings.py"
