"""The chosen episodes of a source, alone or beside another source, as JSON and as text."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import RenderableType

from agentfly_core.reports.show.as_json import both_json, episodes_json
from agentfly_core.reports.show.choice import Conditions, SortOrder, first, matching
from agentfly_core.reports.show.printed import show
from agentfly_core.reports.show.side_by_side import most_changed, played_twice, show_both
from agentfly_core.runs.episodes import Episodes
from agentfly_core.system.formats.json_value import JSON

Shown = tuple[dict[str, JSON], RenderableType]
"""The same content for programs and for people."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The worst or best `count` episodes that meet the conditions:
    `Chosen(stored, Conditions(tool="search"), "worst", 3)`.
    """

    stored: Episodes
    conditions: Conditions
    order: SortOrder
    count: int

    def alone(self) -> Shown:
        """Show the episodes; raises ValueError for conditions on what no episode has."""
        met = matching(self.stored, self.conditions)
        chosen = first(met, self.order, self.count)
        episodes = show(self.stored, len(met), chosen)
        return episodes_json(self.stored, len(met), chosen), episodes

    def beside(self, other: Episodes) -> Shown:
        """Show the episodes that changed most against those of the same problems in `other`."""
        met = matching(self.stored, self.conditions)
        twice = played_twice(met, other, self.stored.title)
        changed = most_changed(twice, self.order, self.count)
        pairs = show_both(self.stored, other, twice, len(met), changed)
        return both_json(self.stored, other, len(met), changed), pairs
