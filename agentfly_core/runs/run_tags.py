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
    """The sorted tags of a run: `Tags(("baseline",), in_mlflow=True)` are in MLflow, too."""

    words: tuple[str, ...]
    in_mlflow: bool

    def __str__(self) -> str:
        return " ".join(self.words)


def tags_of(store: Store, run: str) -> Tags:
    """The tags of a run; a damaged file is logged and counts as empty."""
    try:
        stored = store.read_json(RunLayout(run).tags)
    except Damaged as damage:
        logger.warning("%s The tags of the run that it held are lost.", damage)
        stored = None
    return Tags(tuple(stored["tags"]), stored["in_mlflow"]) if stored else Tags((), in_mlflow=True)


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
    store.write_json(RunLayout(run).tags, {"tags": words, "in_mlflow": False})
    return Tags(words, in_mlflow=False)


def remember_told(store: Store, run: str, sent: Tags) -> None:
    """Write down that MLflow has these tags, unless they changed meanwhile."""
    now = tags_of(store, run)
    if now.words == sent.words and not now.in_mlflow:
        store.write_json(RunLayout(run).tags, {"tags": now.words, "in_mlflow": True})
