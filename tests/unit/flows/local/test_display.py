import io
import logging
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text

from agentfly_core.records.intervals import wilson
from agentfly_core.system.progress import Progress, listening, report
from flows.local.display import (
    Display,
    duration,
    logging_to,
    rates_table,
    stage_bar,
    summary_page,
)
from tests.support.experiments import SUMMARY

REPORTS = [
    Progress("warm start", 0, 4, 4),
    Progress("rollout", 1, 32, 128),
    Progress("rollout", 1, 128, 128),
    Progress("score", 1, 128, 128, "reward 0.550, success 55.0 %"),
    Progress("rollout", 2, 96, 128),
]


def shown(terminal: bool) -> list[str]:
    """The words of each line printed while the reports come in."""
    console = Console(file=io.StringIO(), force_terminal=terminal, width=120)
    with Display("quickstart-1f2e3d4c", 15, console) as display, listening(display):
        for event in REPORTS:
            report(event)
    assert isinstance(console.file, io.StringIO)
    plain = Text.from_ansi(console.file.getvalue()).plain
    return [" ".join(line.split()) for line in re.split(r"[\r\n]+", plain) if line.strip()]


def test_without_a_terminal_each_stage_is_one_line() -> None:
    lines = [re.sub(r" \d+\.\d s", "", line) for line in shown(terminal=False)]
    assert lines == [
        "warm start 4/4",
        "step 1/15 rollout 128/128",
        "step 1/15 score 128/128 reward 0.550, success 55.0 %",
        "step 2/15 rollout 96/128",
    ]


def test_a_terminal_shows_run_step_reward_and_stage() -> None:
    lines = shown(terminal=True)
    run = next(line for line in reversed(lines) if line.startswith("quickstart-1f2e3d4c"))
    assert "step 2/15 rollout 96/128 reward 0.550, success 55.0 %" in run


def test_without_a_terminal_learning_of_tokens_is_one_line() -> None:
    console = Console(file=io.StringIO())
    with stage_bar(console):
        for stage, done in (("model", 8), ("model", 512), ("play", 512)):
            report(Progress(stage, 0, done, 512))
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue() == "nano learns its tokens from 512 episodes.\n"


def test_a_failed_stage_still_shows_its_progress() -> None:
    console = Console(file=io.StringIO(), width=120)
    with pytest.raises(OSError, match="disk full"), Display("demo", 15, console) as display:
        display(Progress("rollout", 3, 40, 128))
        raise OSError("disk full")
    assert isinstance(console.file, io.StringIO)
    assert "40/128" in console.file.getvalue()


def test_the_end_of_a_run_shows_success_and_seconds_by_stage() -> None:
    rows = summary_page(SUMMARY, "", "the link").splitlines()
    assert "| before | 55.0% | 51.9% to 58.1% |" in rows
    assert "| after | 91.2% | 89.3% to 92.8% |" in rows
    assert rows[rows.index("| stage | time |") + 2 :] == [
        "| prepare | 1.2 s |",
        "| warm start | 1 min 45 s |",
        "| rollout | 1 min 00 s |",
        "| evaluate | 30.0 s |",
        "| together | 3 min 16 s |",
        "",
        "the link",
    ]


def test_demonstrations_are_listed_before_the_warm_start() -> None:
    summary: Any = {**SUMMARY, "seconds": {"warm_start": 105.0, "demonstrate": 25.0}}
    assert summary_page(summary).splitlines()[-3:] == [
        "| demonstrate | 25.0 s |",
        "| warm start | 1 min 45 s |",
        "| together | 2 min 10 s |",
    ]


def test_all_rates_of_an_evaluation_are_in_a_table() -> None:
    def rate(success: float, problems: int) -> dict[str, float]:
        low, high = wilson(success * problems, problems)
        return {
            "problems": problems,
            "success": success,
            "interval_low": low,
            "interval_high": high,
        }

    evaluation = {
        **rate(0.5, 1000),
        "pass_at": {"4": rate(0.75, 990)},
        "by": {"kind": {"hard": rate(0.25, 400)}},
        "datasets": {"gsm8k": {**rate(0.1, 200), "pass_at": {"4": rate(0.2, 200)}}},
    }
    rewards: Any = {**evaluation, "rewards": {"right": 0.5, "brief": 0.25}}
    assert rates_table(rewards).splitlines()[-3:] == [
        "| --- | --- | --- |",
        "| test | right | 0.500 |",
        "| test | brief | 0.250 |",
    ]
    assert rates_table(evaluation).splitlines()[2:] == [
        "| test | 50.0% | 46.9% to 53.1% | 1000 |",
        "| test, pass@4 | 75.0% | 72.2% to 77.6% | 990 |",
        "| test, kind hard | 25.0% | 21.0% to 29.5% | 400 |",
        "| gsm8k | 10.0% | 6.6% to 14.9% | 200 |",
        "| gsm8k, pass@4 | 20.0% | 15.0% to 26.1% | 200 |",
    ]
    summary: Any = {**SUMMARY, "evaluations": {"before": evaluation, "after": evaluation}}
    assert summary_page(summary).count("gsm8k, pass@4") == 2


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(4.23, "4.2 s"), (59.94, "59.9 s"), (200, "3 min 20 s"), (7500, "2 h 05 min")],
)
def test_durations_are_written_for_people(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_logs_go_to_the_file_and_later_to_the_terminal_again(tmp_path: Path) -> None:
    terminal = io.StringIO()
    handler = logging.StreamHandler(terminal)
    logger = logging.getLogger("a library")
    logger.propagate = False
    logger.addHandler(handler)
    with logging_to(tmp_path / "logs" / "flow.log"):
        logger.warning("Beginning flow run")
    logger.warning("The end")
    logger.removeHandler(handler)
    assert "WARNING a library: Beginning flow run" in (tmp_path / "logs" / "flow.log").read_text()
    assert terminal.getvalue() == "The end\n"
