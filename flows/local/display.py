"""The live display of a run, and its summary."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.table import Column, Table
from rich.text import Text

from agentfly_core.experiment.keys import VERSIONS
from agentfly_core.records.run_record import Summary
from agentfly_core.runs.listing import in_store
from agentfly_core.store.store import Store
from agentfly_core.system.formats.text import counted, redact
from agentfly_core.system.progress import Progress as StageProgress
from agentfly_core.tracking.mlflow_client import MlflowStore
from flows.local.state_dirs import Places
from flows.local.terminal import VisibleConsole

LOG_FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
OURS = ("agentfly_core", "flows", "tasks")
WHOLE_RUN = 24 * 3600.0


class Display:
    """Shows a run's progress: a live bar on a terminal, and a line for each finished stage.

        with Display("quickstart-1f2e3d4c", steps=15) as display, listening(display):
            ...

    May be called from any thread.
    """

    def __init__(self, run: str, steps: int, console: Console | None = None) -> None:
        self._console, self._steps = console or VisibleConsole(), steps
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(24),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            _Left(),
            console=self._console,
            speed_estimate_period=WHOLE_RUN,
            transient=True,
        )
        self._run = self._bars.add_task(f"[bold]{escape(run)}", total=steps, note="")
        self._stage = self._bars.add_task("starting", total=None, note="")
        self._lock = threading.Lock()
        self._last: StageProgress | None = None
        self._done, self._reward = 0, ""
        self._stage_began = self._reported = time.monotonic()

    def __enter__(self) -> Display:
        if self._console.is_terminal:
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        with self._lock:
            self._print_last()
            if self._console.is_terminal:
                self._bars.stop()

    def __call__(self, report: StageProgress) -> None:
        """Show a report."""
        with self._lock:
            last = self._last
            if last is None or (report.stage, report.step) != (last.stage, last.step):
                self._print_last()
                self._stage_began = self._reported
                self._bars.reset(self._stage, description=escape(report.stage), total=report.total)
            if report.step and (last is None or last.step == 0):
                self._bars.reset(self._run, completed=report.step - 1)  # the pace of steps alone
            self._last, self._reported = report, time.monotonic()
            self._move_bars(report)

    def _print_last(self) -> None:
        """Print the line of the last stage, timed from the last report of the stage before."""
        if (report := self._last) is None:
            return
        reward = "" if report.reward is None else f"reward {report.reward:.3f}"
        where = f"step {report.step}/{self._steps}" if report.step else ""
        line = (
            f"{where:<11} {report.stage:<11} {report.done:>6}/{report.total:<6} "
            f"{duration(self._reported - self._stage_began):>12}  {reward}"
        )
        self._console.print(line.rstrip(), highlight=False, markup=False, soft_wrap=True)

    def _move_bars(self, report: StageProgress) -> None:
        if report.reward is not None:
            self._reward = f"  reward {report.reward:.3f}"
        self._done = max(self._done, report.step - (report.stage != "evaluate"))
        note = f"step {report.step}/{self._steps}{self._reward}"
        self._bars.update(self._run, completed=self._done, note=note)
        note = f"{report.done}/{report.total}"
        self._bars.update(self._stage, completed=report.done, total=report.total, note=note)


class _Left(ProgressColumn):
    """The time left, once it can be estimated from the pace so far."""

    def render(self, task: Task) -> Text:
        seconds = task.time_remaining
        return Text("" if not seconds else f"{duration(seconds)} left", style="cyan")


def duration(seconds: float) -> str:
    """Seconds for people: `4.2 s`, `3 min 20 s`, `2 h 05 min`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours = f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes < 60 else hours


def summary_table(summary: Summary, commands: Mapping[str, str]) -> RenderableType:
    """The end of a run: held-out success before and after, and seconds by stage.

    `commands` open this run elsewhere: `{"MLflow": "agentfly open mlflow quickstart-1f2e3d4c"}`.
    """
    width = max(map(len, commands), default=0)
    opening = [Text.assemble((f"{ui:<{width}}  ", "bold"), commands[ui]) for ui in commands]
    success = _rates_table(
        "held-out success",
        f"{summary['run']}: {counted(summary['steps'], 'step')} of {summary['experiment']}",
    )
    for when, share, (low, high) in (
        ("before", summary["success_before"], summary["interval_before"]),
        ("after", summary["success_after"], summary["interval_after"]),
    ):
        success.add_row(when, f"{share:.1%}", f"{low:.1%} to {high:.1%}")
    evaluations = summary.get("evaluations", {})
    more = [rates_table(rates, f"\n{when}") for when, rates in evaluations.items()]
    times = Table("stage", Column("time", justify="right"), show_edge=False)
    seconds = summary["seconds"]
    for stage in (stage for stage in VERSIONS if stage in seconds):  # files sort them by name
        took = duration(seconds[stage]) if seconds[stage] else "reused"
        times.add_row(stage.replace("_", " "), took)
    times.add_row("together", duration(sum(seconds.values())), style="bold")
    return Group(success, *more, "", times, "", *opening)


def rates_table(evaluation: Mapping[str, Any], title: str = "") -> Table:
    """All rates of `Evaluation.to_json`: success, pass@k, by tag, and on further datasets."""
    table = _rates_table("held-out problems", title)
    table.add_column("problems", justify="right", no_wrap=True)
    for name, rate in _rates(evaluation, "test"):
        interval = f"{rate['interval_low']:.1%} to {rate['interval_high']:.1%}"
        table.add_row(name, f"{rate['success']:.1%}", interval, f"{rate['problems']}")
    return table


def _rates_table(first: str, title: str) -> Table:
    table = Table(Column(first, no_wrap=True), title=title, title_justify="left", show_edge=False)
    for name in ("solved", "95 % interval"):
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _rates(evaluation: Mapping[str, Any], name: str) -> Iterator[tuple[str, Mapping[str, float]]]:
    yield name, evaluation
    for k, rate in evaluation.get("pass_at", {}).items():
        yield f"{name}, pass@{k}", rate
    for fact, rates in evaluation.get("by", {}).items():
        for value, rate in rates.items():
            yield f"{name}, {fact} {value}", rate
    for other, its in evaluation.get("datasets", {}).items():
        yield from _rates(its, other)


@contextmanager
def logging_to(path: Path) -> Iterator[None]:
    """Log into a file instead of the terminal with its live display; show our own warnings."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = logging.FileHandler(path)
    file.setFormatter(logging.Formatter(LOG_FORMAT))
    loggers = [logging.getLogger(name) for name in ["", *logging.root.manager.loggerDict]]
    moved = [
        (logger, handler)
        for logger in loggers
        for handler in logger.handlers
        if isinstance(handler, logging.StreamHandler)
        and not isinstance(handler, logging.FileHandler)
    ]
    added = [(logging.root, file), *((logging.getLogger(name), _Warnings()) for name in OURS)]
    added += [(logger, file) for logger, _ in moved]
    _exchange(moved, added)
    try:
        yield
    finally:
        _exchange(added, moved)
        file.close()


class _Warnings(logging.Handler):
    """Prints warnings above the live display, which replaces sys.stderr."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)

    def emit(self, record: logging.LogRecord) -> None:
        print(f"agentfly: {record.getMessage()}", file=sys.stderr)


Handlers = Sequence[tuple[logging.Logger, logging.Handler]]


def _exchange(old: Handlers, new: Handlers) -> None:
    for logger, handler in old:
        logger.removeHandler(handler)
    for logger, handler in new:
        logger.addHandler(handler)


def show_places(places: Places, tracking_uri: str) -> None:
    """Print the addresses of Prefect and MLflow, each with its reason."""
    mlflow = MlflowStore.choose(places.state, tracking_uri)
    for place in (f"Prefect: {places.prefect}", f"MLflow: {mlflow.uri} ({mlflow.why})"):
        print(redact(place), flush=True)


def show_summary(store: Store, summary: Summary) -> None:
    """Print the summary of a run."""
    opening = {
        ui: in_store(store, "agentfly", "open", ui.lower(), summary["run"])
        for ui in ("MLflow", "Prefect")
    }
    VisibleConsole().print(summary_table(summary, opening), soft_wrap=True)
