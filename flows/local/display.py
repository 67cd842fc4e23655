"""The live display of a run, and its summary."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markdown import Markdown
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from agentfly_core.experiment.keys import VERSIONS
from agentfly_core.records.run_record import Summary
from agentfly_core.reports.show.markdown import plain, table
from agentfly_core.runs.listing import experiment_of, in_store
from agentfly_core.runs.run import known_run
from agentfly_core.runs.tracking.mlflow_client import MlflowStore
from agentfly_core.store.store import Store
from agentfly_core.system.formats.text import counted, redact
from agentfly_core.system.progress import Progress as StageProgress
from agentfly_core.system.progress import listening
from flows.local.state_dirs import Places
from flows.local.terminal import VisibleConsole

LOG_FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
OURS = ("agentfly_core", "flows", "tasks")
WHOLE_RUN = 24 * 3600.0


class Display:
    """Shows a run's progress: a live bar on a terminal, and a line for each finished stage.

        with Display("quickstart-1f2e3d4c", steps=15) as display, listening(display):
            ...

    Any thread may call a display. If `log` is given, the lines are passed to this function instead
    of the console.
    """

    def __init__(
        self,
        run: str,
        steps: int,
        console: Console | None = None,
        log: Callable[[str], None] | None = None,
    ) -> None:
        self._console, self._steps, self._log = console or VisibleConsole(), steps, log
        self._bars = _bars(self._console)
        self._run = self._bars.add_task(run, total=steps, note="")
        self._lock = threading.Lock()
        self._last: StageProgress | None = None
        self._scored = ""
        self._stage_began = self._reported = time.monotonic()

    def __enter__(self) -> Display:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._print_last()
            self._bars.stop()

    def __call__(self, report: StageProgress) -> None:
        """Show a progress report."""
        with self._lock:
            last = self._last
            if last and (report.stage, report.step) != (last.stage, last.step):
                self._print_last()
                self._stage_began = self._reported
            self._last, self._reported = report, time.monotonic()
            self._scored = report.note or self._scored
            stage = f"{report.stage} {report.done}/{report.total}"
            note = f"step {report.step}/{self._steps}  {stage}  {self._scored}"
            self._bars.update(self._run, completed=max(0, report.step - 1), note=note)

    def _print_last(self) -> None:
        """Print a line for the stage of the report `self._last`.

        The duration in this line is measured from the last report of the previous stage.
        """
        if (report := self._last) is None:
            return
        where = f"step {report.step}/{self._steps}" if report.step else ""
        line = (
            f"{where:<11} {report.stage:<11} {report.done:>6}/{report.total:<6} "
            f"{duration(self._reported - self._stage_began):>12}  {report.note}"
        )
        if self._log:
            self._log(line.strip())
        else:
            self._console.print(line.rstrip(), highlight=False, markup=False, soft_wrap=True)


@contextmanager
def stage_bar(console: Console) -> Iterator[None]:
    """Show the running stage as a bar on a terminal during the `with` block.

    If the output is not a terminal, no bar is shown. Before the tokenizer of the tiny model
    `nano` is trained, a line is printed on any output, because this training may take a minute.
    """
    with _bars(console) as bars:
        task = bars.add_task("starting", total=None, note="")
        learns = False

        def show(report: StageProgress) -> None:
            nonlocal learns
            # this may take a minute, and only terminals show bars
            if report.stage == "model" and not learns:
                learns = True
                console.print(f"nano learns its tokens from {report.total} episodes.")
            bars.update(task, description=report.stage, completed=report.done, total=report.total)

        with listening(show):
            yield


def _bars(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(24),
        TextColumn("{task.fields[note]}", markup=False),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        # by default, rich estimates the remaining time from 30 s, but a step may take longer
        speed_estimate_period=WHOLE_RUN,
        transient=True,
        disable=not console.is_terminal,
    )


def duration(seconds: float) -> str:
    """Format seconds: `4.2 s`, `3 min 20 s`, `2 h 05 min`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours = f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes < 60 else hours


def summary_page(summary: Summary, *links: str) -> str:
    """Return the result of a run as a Markdown text.

    The text contains the success rates on held-out problems before and after training, and the time
    of each stage. For a run with only a warm start, a table of losses replaces the rates before
    training. The Markdown links in `links` are added at the end.
    """
    steps, experiment = counted(summary["steps"], "step"), plain(summary["experiment"])
    sections = [f"**{summary['run']}: {steps} of {experiment}**"]
    if losses := summary.get("losses"):
        sections.append(losses_table(losses))
    if "success_after" in summary:
        success = [
            (when, f"{share:.1%}", f"{low:.1%} to {high:.1%}")
            for when, share, (low, high) in (
                ("before", summary["success_before"], summary["interval_before"]),
                ("after", summary["success_after"], summary["interval_after"]),
            )
        ]
        titles = ("held-out success", "solved", "95 % interval")
        sections.append(table(titles, success[1:] if losses else success))
    for when, evaluation in summary.get("evaluations", {}).items():
        sections += [when, rates_table(evaluation)]
    seconds = summary["seconds"]
    times = [
        (stage.replace("_", " "), duration(seconds[stage]) if seconds[stage] else "reused")
        for stage in VERSIONS  # in their order of work; files sort stages by name
        if stage in seconds
    ]
    times.append(("together", duration(sum(seconds.values()))))
    return "\n\n".join([*sections, table(("stage", "time"), times), *filter(None, links)])


def losses_table(losses: Sequence[Mapping[str, float]]) -> str:
    """Return a table of the mean training loss and the held-out loss of each warm-start round."""
    rows = [
        (
            str(number),
            *(f"{one[key]:.4f}" if key in one else "" for key in ("loss", "held_out_loss")),
        )
        for number, one in enumerate(losses, 1)
    ]
    return table(("round of the warm start", "loss", "held-out loss"), rows)


def rates_table(evaluation: Mapping[str, Any]) -> str:
    """Return Markdown tables of the success rates and of the mean rewards of an evaluation.

    `evaluation` is a result of `Evaluation.to_json`. In the first table, the rows are the success
    rate, pass@k, and the success rate for each value of a fact (an entry of `Problem.facts`). The
    table has the same rows for each dataset of the setting evaluate.datasets. The second table has
    the mean rewards. It is left out if neither `evaluation` nor its datasets have rewards, as in
    evaluations of older versions.
    """
    titles = ("held-out problems", "solved", "95 % interval", "problems")
    tables, parts = [table(titles, [*_rates(evaluation, "test")])], {"test": evaluation}
    means = [
        (plain(name), plain(reward), f"{mean:.3f}")
        for name, part in (parts | evaluation.get("datasets", {})).items()
        for reward, mean in part.get("rewards", {}).items()
    ]
    tables += [table(("held-out problems", "reward", "mean"), means)] if means else []
    return "\n\n".join(tables)


def _rates(rate: Mapping[str, Any], name: str) -> Iterator[tuple[str, ...]]:
    interval = f"{rate['interval_low']:.1%} to {rate['interval_high']:.1%}"
    yield plain(name), f"{rate['success']:.1%}", interval, str(rate["problems"])
    parts = {f"{name}, pass@{k}": inner for k, inner in rate.get("pass_at", {}).items()}
    for fact, values in rate.get("by", {}).items():
        parts |= {f"{name}, {fact} {value}": inner for value, inner in values.items()}
    for part, inner in {**parts, **rate.get("datasets", {})}.items():
        yield from _rates(inner, part)


@contextmanager
def logging_to(path: Path) -> Iterator[None]:
    """During the `with` block, write logs to a file, because the terminal shows the display.

    Warnings of AgentFly itself are printed on the terminal, too.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    file, warnings = logging.FileHandler(path), _Warnings()
    file.setFormatter(logging.Formatter(LOG_FORMAT))
    loggers = [logging.getLogger(name) for name in ("", *OURS, *logging.root.manager.loggerDict)]
    before = {logger: logger.handlers for logger in loggers}
    for logger, handlers in before.items():
        quiet = [handler for handler in handlers if not _prints(handler)]
        if logger is logging.root or len(quiet) < len(handlers):
            quiet.append(file)
        logger.handlers = [*quiet, warnings] if logger.name in OURS else quiet
    try:
        yield
    finally:
        for logger, handlers in before.items():
            logger.handlers = handlers
        file.close()


def _prints(handler: logging.Handler) -> bool:
    is_file = isinstance(handler, logging.FileHandler)
    return isinstance(handler, logging.StreamHandler) and not is_file


class _Warnings(logging.Handler):
    """Prints warnings to sys.stderr.

    The live display replaces sys.stderr, and prints the warnings above its bar.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)

    def emit(self, record: logging.LogRecord) -> None:
        print(f"agentfly: {record.getMessage()}", file=sys.stderr)


def show_places(places: Places, tracking_uri: str) -> None:
    """Print the addresses of Prefect and MLflow, and the settings that they come from."""
    mlflow = MlflowStore.choose(places.state, tracking_uri)
    for place in (f"Prefect: {places.prefect}", f"MLflow: {mlflow.uri} ({mlflow.why})"):
        print(redact(place), flush=True)


def show_summary(store: Store, summary: Summary) -> None:
    """Print the summary of a run."""
    links = [
        f"{ui}: `{in_store(store, 'agentfly', 'open', ui.lower(), summary['run'])}`"
        for ui in ("MLflow", "Prefect")
    ]
    if "losses" in summary:
        links += [f"`{command}`" for command in next_commands(store, summary["run"])]
    VisibleConsole().print(Markdown(summary_page(summary, *links)), soft_wrap=True)


def next_commands(store: Store, run: str) -> list[str]:
    """Return `agentfly` commands to show after a warm start. They use the policy of the run."""
    record = known_run(store, run)
    what, overrides = experiment_of(record)
    policy = ("--policy", f"run:{run}")
    commands = [("play", what, *overrides, *policy), ("export", f"run:{run}", "./policy")]
    if record["settings"]["rewards"]:  # evaluations need a goal
        commands += [("evaluate", what, *overrides, *policy), ("compare", run)]
    return [in_store(store, "agentfly", *words) for words in commands]
