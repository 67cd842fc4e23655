"""Paths of played episodes in their store."""

from __future__ import annotations

from itertools import count

from agentfly_core.experiment.run_layout import shard_uri
from agentfly_core.store.store import Store

PLAYS = "plays"


class PlayLayout:
    """Paths of played episodes: `PlayLayout("quickstart-3").scored` is `plays/quickstart-3/scored`.

    `record` is a PlayRecord. `scored` has the scores of all episodes; the inputs in its manifest
    name the shards, see `rollouts` in run_layout. `tokenizer` reads their tokens.
    """

    def __init__(self, name: str) -> None:
        self.uri = f"{PLAYS}/{name}"
        self.record = f"{self.uri}/play.json"
        self.scored = f"{self.uri}/scored"
        self.tokenizer = f"{self.uri}/tokenizer"

    def rollout(self, shard: int) -> str:
        """The episodes of one shard."""
        return shard_uri(self.uri, shard)


def plays(store: Store) -> list[str]:
    """Return the names of all played episodes, ordered by experiment and number."""
    return sorted(store.names(PLAYS), key=_parts)


def next_play(store: Store, experiment: str) -> str:
    """The first free name: `next_play(store, "quickstart")` is `quickstart-1` in an empty store."""
    taken = set(store.names(PLAYS))
    return next(name for n in count(1) if (name := f"{experiment}-{n}") not in taken)


def _parts(name: str) -> tuple[str, int]:
    experiment, _, number = name.rpartition("-")
    return (experiment, int(number)) if number.isdecimal() else (name, 0)
