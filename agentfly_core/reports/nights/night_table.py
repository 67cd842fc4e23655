"""The nights of an experiment as a table, with the champion in a sentence."""

from __future__ import annotations

from datetime import datetime

from rich.table import Table

from agentfly_core.reports.nights.night_ledger import NightHistory


def nights_table(experiment: str, history: NightHistory) -> Table:
    """A row for each event of the nights, oldest first."""
    table = Table("when", "night", "event", "why", title=f"Nights of {experiment}")
    for entry in history.entries:
        when = datetime.fromtimestamp(entry.time_ms / 1000).strftime("%Y-%m-%d %H:%M")
        table.add_row(when, entry.night, entry.event.replace("_", " "), entry.why)
    return table


def champion_of(history: NightHistory) -> str:
    """The champion in a sentence."""
    champion = history.champion
    return f"The champion is {champion.reference}." if champion else "There is no champion."
