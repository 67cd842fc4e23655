"""Commands about nights: the outcome of each, and the champion."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from rich.markdown import Markdown
from rich.table import Table

from agentfly_core.config.reference import LastPolicy, RunPolicy, run_policy
from agentfly_core.experiment import keys
from agentfly_core.experiment.run_layout import RunLayout
from agentfly_core.experiment.run_policies import of_run
from agentfly_core.reports.nights.night_ledger import Champion, NightHistory, NightLedger
from agentfly_core.reports.nights.night_report import night_page
from agentfly_core.runs.run import known_run, recorded_settings
from flows.cli.arguments import HERE, RUNS, ExperimentArg, StoreArg, Where
from flows.experiments import load_experiment
from flows.local.terminal import VisibleConsole
from flows.nights.report import report_aliases
from flows.store import store_at


def nights(target: ExperimentArg, /, *, where: Where = HERE) -> None:
    """Show the outcome of each night of an experiment.

    For example `agentfly nights quickstart`.
    """
    experiment = load_experiment(target, [], where.site, where.store)
    table = Table("when", "night", "event", "why", title=f"Nights of {experiment.name}")
    history = NightLedger(experiment.store, experiment.name).read()
    for entry in history.entries:
        when = datetime.fromtimestamp(entry.time_ms / 1000).strftime("%Y-%m-%d %H:%M")
        table.add_row(when, entry.night, entry.event.replace("_", " "), entry.why)
    VisibleConsole().print(table)
    print(_champion_of(history))


def report(night: str, /, *, store_uri: StoreArg = "") -> None:
    """Write the report of a night, and show it.

    For example `agentfly report nightly-2026-11-21`.

    Args:
        night: name of a night that was judged: nightly-2026-11-21
    """
    store, layout = store_at(store_uri), RunLayout(night)
    page = night_page(store, night)
    store.write_text(layout.report, page)
    VisibleConsole().print(Markdown(page, hyperlinks=False))
    print(f"This report is the file {store.uri}/{layout.report}.")


def promote(run: Annotated[str, RUNS], /, *, store_uri: StoreArg = "") -> None:
    """Make a run's policy the champion of its experiment.

    For example `agentfly promote nightly-2026-11-21@12`.

    Args:
        run: name of a run, for its last policy, or RUN@STEP
    """
    store = store_at(store_uri)
    policy = run_policy(run)
    record = known_run(store, policy.run)
    if isinstance(policy, LastPolicy):
        policy = RunPolicy(policy.run, recorded_settings(record).steps)
    champion = Champion(policy, of_run(store, policy, "RUN").policy)
    ledger = NightLedger(store, record["experiment"])
    if (current := ledger.read().champion) and current.policy == champion.policy:
        print(f"It is the champion of {record['experiment']} already: {current.reference}.")
        return
    experiment = load_experiment(record["experiment"], [], record["site"]["name"], store.uri)
    state = keys.learner(store.resolve(champion.policy).key)
    if experiment.settings.update.optimizer_state == "parent" and not store.holds(state.uri):
        raise ValueError(
            f"{policy} has no learner state, but update.optimizer_state is parent in "
            f"conf/{experiment.name}.yaml. Name a step that has one, or set it to fresh."
        )
    ledger.append(policy.run, "promoted", "A person promoted it on the command line.", champion)
    report_aliases(ledger, experiment.site)
    print(f"The champion of {record['experiment']} is {policy}; the next night starts from it.")


def demote(target: ExperimentArg, /, *, where: Where = HERE) -> None:
    """Withdraw the champion; the one before takes its place.

    For example `agentfly demote quickstart`.
    """
    experiment = load_experiment(target, [], where.site, where.store)
    ledger = NightLedger(experiment.store, experiment.name)
    champion = ledger.read().champion
    if champion is None:
        raise ValueError(f"The experiment {experiment.name!r} has no champion.")
    ledger.append(champion.reference.run, "demoted", "A person demoted it on the command line.")
    report_aliases(ledger, experiment.site)
    print(f"{champion.reference} is no longer the champion. {_champion_of(ledger.read())}")


def _champion_of(history: NightHistory) -> str:
    champion = history.champion
    return f"The champion is {champion.reference}." if champion else "There is no champion."
