"""Commands about nights (nightly training runs): outcomes, reports, and the champion."""

from typing import Annotated

from rich.markdown import Markdown
from rich.table import Table

from agentfly_core.experiment.run_layout import RunLayout
from agentfly_core.reports.nights.night_ledger import NightLedger
from agentfly_core.reports.nights.night_report import night_page
from flows import approval
from flows.cli.arguments import HERE, RUNS, ExperimentArg, StoreArg, Where
from flows.experiments import load_experiment
from flows.local.terminal import VisibleConsole
from flows.store import store_at


def nights(target: ExperimentArg, /, *, where: Where = HERE) -> None:
    """Show how each nightly training run of an experiment ended."""
    experiment = load_experiment(**where.of_flow(target))
    history = NightLedger(experiment.store, experiment.name).read()
    table = Table("when", "night", "event", "why", title=f"Nights of {experiment.name}")
    for entry in history.entries:
        when, event = entry.cells
        table.add_row(when, entry.night, event, entry.why)
    VisibleConsole().print(table)
    print(history.champion_in_words)


def report(night: str, /, *, store_uri: StoreArg = "") -> None:
    """Write the report of a nightly training run, and show it.

    Args:
        night: name of an evaluated nightly run, such as nightly-2026-11-21
    """
    store, layout = store_at(store_uri), RunLayout(night)
    page = night_page(store, night)
    store.write_text(layout.report, page)
    VisibleConsole().print(Markdown(page, hyperlinks=False))
    print(f"This report is the file {store.uri}/{layout.report}.")


def promote(run: Annotated[str, RUNS], /, *, store_uri: StoreArg = "") -> None:
    """Make a run's policy the champion of its experiment.

    The next nightly training run starts from the champion.

    Args:
        run: RUN (the run's last policy) or RUN@STEP
    """
    print(approval.promote_run(store_at(store_uri), run))


def demote(target: ExperimentArg, /, *, where: Where = HERE) -> None:
    """Withdraw the champion; the previous champion takes its place."""
    experiment = load_experiment(**where.of_flow(target))
    print(approval.withdraw(experiment.store, experiment.name, experiment.site))
