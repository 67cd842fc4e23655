"""What a person sees while a run works, and at its end."""

from __future__ import annotations

import json
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

from agentfly_core.config import loading
from agentfly_core.experiment.experiment import Experiment
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
        self._console = console or VisibleConsole()
        self._lines = _Lines(self._console, steps)
        self._bars = _Bars(self._console, run, steps)
        self._lock = threading.Lock()

    def __enter__(self) -> Display:
        if self._console.is_terminal:
            self._bars.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        with self._lock:
            self._lines.end()
            if self._console.is_terminal:
                self._bars.progress.stop()

    def __call__(self, progress: StageProgress) -> None:
        """Take note of what was reported."""
        with self._lock:
            self._lines.show(progress)
            self._bars.show(progress)


class _Lines:
    """A line for each finished stage, timed from the last report of the stage before."""

    def __init__(self, console: Console, steps: int) -> None:
        self._console, self._steps = console, steps
        self._last: StageProgress | None = None
        self._started = self._heard = time.monotonic()

    def show(self, report: StageProgress) -> None:
        if self._last is None or (report.stage, report.step) != (self._last.stage, self._last.step):
            self.end()
            self._started = self._heard
        self._last, self._heard = report, time.monotonic()

    def end(self) -> None:
        if self._last is None:
            return
        report, seconds = self._last, self._heard - self._started
        reward = "" if report.reward is None else f"reward {report.reward:.3f}"
        where = f"step {report.step}/{self._steps}" if report.step else ""
        line = (
            f"{where:<11} {report.stage:<11} {report.done:>6}/{report.total:<6} "
            f"{duration(seconds):>12}  {reward}"
        )
        self._console.print(line.rstrip(), highlight=False, markup=False, soft_wrap=True)
        self._last = None


class _Bars:
    """The steps of the run above the stage at work."""

    def __init__(self, console: Console, run: str, steps: int) -> None:
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(24),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            _Left(),
            console=console,
            speed_estimate_period=WHOLE_RUN,
            transient=True,
        )
        self._steps = steps
        self._run = self.progress.add_task(f"[bold]{escape(run)}", total=steps, note="")
        self._stage = self.progress.add_task("starting", total=None, note="")
        self._now = ("", 0)
        self._done, self._reward = 0, ""

    def show(self, report: StageProgress) -> None:
        if self._now[1] == 0 and report.step:
            self.progress.reset(self._run, completed=report.step - 1)
        if self._now != (report.stage, report.step):
            self.progress.reset(self._stage, description=escape(report.stage), total=report.total)
        self._now = (report.stage, report.step)
        if report.reward is not None:
            self._reward = f"  reward {report.reward:.3f}"
        self._done = max(self._done, report.step if report.stage == "evaluate" else report.step - 1)
        self.progress.update(
            self._run, completed=self._done, note=f"step {report.step}/{self._steps}{self._reward}"
        )
        self.progress.update(
            self._stage,
            completed=report.done,
            total=report.total,
            note=f"{report.done}/{report.total}",
        )


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
    return (
        f"{minutes} min {rest:02d} s"
        if minutes < 60
        else f"{minutes // 60} h {minutes % 60:02d} min"
    )


def summary_table(summary: Summary, commands: Mapping[str, str]) -> RenderableType:
    """The end of a run, from its summary.json: held-out success before and after, seconds by stage.

    `commands` by name each open this very run somewhere:
    `{"MLflow": "agentfly open mlflow quickstart-1f2e3d4c"}`.
    """
    width = max((len(name) for name in commands), default=0)
    opening = [
        Text.assemble((f"{name:<{width}}  ", "bold"), command) for name, command in commands.items()
    ]

    success = Table(
        Column("held-out success", no_wrap=True),
        Column("solved", justify="right", no_wrap=True),
        Column("95 % interval", justify="right", no_wrap=True),
        title=f"{summary['run']}: {counted(summary['steps'], 'step')} of {summary['experiment']}",
        title_justify="left",
        show_edge=False,
    )
    for when, share, (low, high) in (
        ("before", summary["success_before"], summary["interval_before"]),
        ("after", summary["success_after"], summary["interval_after"]),
    ):
        success.add_row(when, f"{share:.1%}", f"{low:.1%} to {high:.1%}")
    more = [
        rates_table(rates, f"\n{when}") for when, rates in summary.get("evaluations", {}).items()
    ]
    seconds = summary["seconds"]
    times = Table("stage", Column("time", justify="right"), show_edge=False)
    for stage in (stage for stage in VERSIONS if stage in seconds):  # in a file they stand by name
        # without seconds it was there before the run
        took = duration(seconds[stage]) if seconds[stage] else "reused"
        times.add_row(stage.replace("_", " "), took)
    times.add_row("together", duration(sum(seconds.values())), style="bold")
    return Group(success, *more, "", times, "", *opening)


def rates_table(evaluation: Mapping[str, Any], title: str = "") -> Table:
    """All rates of `Evaluation.to_json`: success, pass@k, by tag, and on further datasets."""
    table = Table(
        "held-out problems",
        Column("solved", justify="right", no_wrap=True),
        Column("95 % interval", justify="right", no_wrap=True),
        Column("problems", justify="right", no_wrap=True),
        title=title,
        title_justify="left",
        show_edge=False,
    )
    for name, rate in _rates(evaluation, "test"):
        low, high = rate["interval_low"], rate["interval_high"]
        solved, interval = f"{rate['success']:.1%}", f"{low:.1%} to {high:.1%}"
        table.add_row(name, solved, interval, f"{rate['problems']}")
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
    streams, files = logging.StreamHandler, logging.FileHandler
    moved = [
        (logger, handler)
        for logger in loggers
        for handler in logger.handlers
        if isinstance(handler, streams) and not isinstance(handler, files)
    ]
    added = [(logging.root, file), *((logging.getLogger(name), _Warnings()) for name in OURS)]
    _exchange(moved, [*((logger, file) for logger, _ in moved), *added])
    try:
        yield
    finally:
        _exchange([*((logger, file) for logger, _ in moved), *added], moved)
        file.close()


class _Warnings(logging.Handler):
    """Prints warnings above the live display, which has put itself in the place of sys.stderr."""

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


def settings_table(experiment: Experiment, site_origin: Mapping[str, str], changed: bool) -> Table:
    """All settings of an experiment and its site with their origins, or those not at defaults."""
    origin = {**experiment.origin, **loading.flat(dict(site_origin), "site.")}
    values = {
        **loading.flat(experiment.settings.model_dump(mode="json")),
        **loading.flat(experiment.site.model_dump(), "site."),
    }
    usual = loading.defaults() if changed else {}
    table = Table(
        *(Column(name, overflow="fold") for name in ("setting", "value", "from")), show_edge=False
    )
    for key, value in values.items():
        is_set = origin[key] not in ("default", loading.TASKS) and usual.get(key, ...) != value
        if is_set or not changed:
            table.add_row(key, json.dumps(value), str(origin[key]))
    return table


def show_places(places: Places, tracking_uri: str) -> None:
    """Print the addresses of Prefect and MLflow, each with the reason."""
    mlflow = MlflowStore.choose(places.state, tracking_uri)
    for place in (places.prefect, f"MLflow: {mlflow.uri} ({mlflow.why})"):
        print(redact(str(place)), flush=True)


def show_summary(store: Store, summary: Summary) -> None:
    """The table at the end of a run, and the commands that open it elsewhere."""
    opening = {
        ui: in_store(store, "agentfly", "open", ui.lower(), summary["run"])
        for ui in ("MLflow", "Prefect")
    }
    VisibleConsole().print(summary_table(summary, opening), soft_wrap=True)
