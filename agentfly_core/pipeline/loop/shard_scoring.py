"""Scoring a step's shards while its next shards are played."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field
from pathlib import Path

from agentfly_core.pipeline.scoring import ScoredShard
from agentfly_core.store.artifact import Artifact
from agentfly_core.store.store import Store

ScoreShard = Callable[[Path], ScoredShard]
"""Scores the episodes in a folder."""


@contextmanager
def scoring_shards(store: Store, score: ScoreShard) -> Iterator[ShardScoring]:
    """Yield a scorer with a thread that scores shards one after the other.

    An interrupted block waits for the shard in progress and cancels the others.
    """
    with ThreadPoolExecutor(1, "score") as thread:
        scoring = ShardScoring(store, score, thread)
        try:
            yield scoring
        finally:
            thread.shutdown(cancel_futures=True)


@dataclass(frozen=True)
class ShardScoring:
    """Shards of a step that are being scored: `scoring.begin(shard)`, later `scoring.shards()`.

    Scores are in memory only; a step that was killed scores its shards in its stage.
    """

    store: Store
    score: ScoreShard
    thread: ThreadPoolExecutor
    begun: dict[Artifact, Future[ScoredShard]] = field(default_factory=dict)

    def begin(self, shard: Artifact) -> None:
        """Score a shard's episodes in the thread."""
        episodes = self.store.open(shard)
        work = copy_context().run
        self.begun[shard] = self.thread.submit(work, self.score, episodes)

    def shards(self) -> dict[Artifact, ScoredShard]:
        """Wait for all shards begun, and return them."""
        return {shard: scored.result() for shard, scored in self.begun.items()}
