"""A comparison on a terminal and as a picture."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.image import imread
from rich.console import Console

from agentfly_core.reports.compare.comparison_view import draw, view
from agentfly_core.reports.compare.run_comparison import RunComparison, SeedGroup, TriedPolicy
from agentfly_core.reports.compare.run_steps import AXES, Curve
from agentfly_core.reports.compare.seed_intervals import Estimate

RATE, SIZE = "update.learning_rate", "rollout.group_size"


def group(run: str, rate: float, success: float, difference: float | None) -> SeedGroup:
    policy = TriedPolicy(run, 2, 0, 0, {}, "f491", "exact", {"a": 1.0, "b": 0.0})
    interval = success - 0.05, success + 0.05
    estimate = None if difference is None else Estimate(difference, (-0.01, 0.05), "problems")
    settings = {RATE: rate, SIZE: 8}
    return SeedGroup(settings, (policy,), Estimate(success, interval, "problems"), estimate)


GROUPS = (group("demo", 1e-4, 0.5, None), group("fast", 3e-4, 0.52, 0.02))
FOUND = RunComparison(GROUPS, 200, 0)


def curves(*success: float) -> dict[str, list[Curve]]:
    steps = tuple(float(number + 1) for number in range(len(success)))
    return {each.label: [Curve(success, dict.fromkeys(AXES, steps))] for each in GROUPS}


def shown(width: int, *success: float) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    console.print(view(FOUND, curves(*success), "test"), soft_wrap=True)
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_headings_and_numbers_fit_a_narrow_terminal() -> None:
    table = shown(40, 0.1, 0.2)[:6]
    assert [" ".join(line.split()) for line in table[1:3]] == [
        "┃ update. ┃ rollout. ┃ ┃ ┃ ┃",
        "run ┃ learning_rate ┃ group_size ┃ seed ┃ solved ┃ 95 % interval ┃ difference",
    ]
    assert table[5].endswith("│  52.0% │ 47.0% to 57.0% │ +2.0 (-1.0 to +5.0)")
    assert shown(200, 0.1, 0.2)[:6] == table


def test_curves_of_several_settings_are_named_by_their_runs() -> None:
    lines = shown(200, 0.1, 0.2)
    assert sum("learning_rate" in line for line in lines) == 1
    assert lines[4].split()[:5] == ["demo@2", "│", "1e-4", "│", "8"]
    assert [line.split()[0] for line in lines[8:10]] == ["demo@2", "fast@2"]
    assert lines[-1].startswith("fast@2 solves 2.0 percentage points more problems than demo@2 (")


def test_settings_above_the_sixth_are_counted() -> None:
    groups = [replace(each, differs={f"s{n}": n for n in range(8)}) for each in GROUPS]
    console = Console(file=io.StringIO(), width=200)
    console.print(view(RunComparison(tuple(groups), 200, 0), curves(0.1, 0.2), "test"))
    assert isinstance(console.file, io.StringIO)
    assert "s5" in console.file.getvalue()
    assert "2 more settings; --json" in console.file.getvalue()


def test_runs_that_solve_nothing_have_a_note_and_no_curves() -> None:
    lines = shown(120, 0.0, 0.0)
    assert "No episode of training was solved, so there is no curve to show." in lines
    assert not any("over seconds" in line for line in lines)
    assert lines[-1] == FOUND.sentence


@pytest.mark.slow
def test_the_picture_of_runs_that_solve_nothing_has_a_note(tmp_path: Path) -> None:
    for name, success in (("none", 0.0), ("some", 0.001)):
        draw(FOUND, curves(success, success), "test", tmp_path / f"{name}.png")
    # the note in the middle of the three panels of learning
    none, some = (imread(tmp_path / f"{name}.png")[230:330, 100:1400] for name in ("none", "some"))
    assert (none != 1).sum() > (some != 1).sum()
