"""Tags that people give to runs; they lie beside run.json, so that a run at work may be tagged."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass

from agentfly_core.experiment.run_layout import RunLayout
from agentfly_core.store.store import Store
from agentfly_core.system.formats.checksummed_json import Damaged

WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Tags:
    """The sorted tags of a run, and whether MLflow has these: `Tags(("baseline",), told=True)`."""

    words: tuple[str, ...]
    told: bool

    def __str__(self) -> str:
        return " ".join(self.words)


def tags_of(store: Store, run: str) -> Tags:
    """The tags of a run; a damaged file is logged and counts as empty."""
    try:
        found = store.read_json(RunLayout(run).tags)
    except Damaged as damage:
        logger.warning("%s The tags of the run that it held are lost.", damage)
        found = None
    return Tags(tuple(found["tags"]), found["told"]) if found else Tags((), told=True)


def change_tags(store: Store, run: str, added: Sequence[str], removed: Sequence[str]) -> Tags:
    """Add and remove tags of a run; returns those it has now, which MLflow does not have yet.

    Raises ValueError for what is no single word.
    """
    if wrong := [word for word in added if not WORD.fullmatch(word)]:
        raise ValueError(
            f"Got the tag {wrong[0]!r}, expected letters, digits, '.', '_' and '-', such as "
            "baseline."
        )
    words = tuple(sorted({*tags_of(store, run).words, *added} - {*removed}))
    store.write_json(RunLayout(run).tags, {"tags": words, "told": False})
    return Tags(words, told=False)


def remember_told(store: Store, run: str, told: Tags) -> None:
    """Write down that MLflow has these tags, unless they changed meanwhile."""
    now = tags_of(store, run)
    if now.words == told.words and not now.told:
        store.write_json(RunLayout(run).tags, {"tags": now.words, "told": True})
