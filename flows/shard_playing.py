"""Shards that are played one after the other, each stored while the next one is played."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from contextvars import Context, copy_context
from queue import SimpleQueue

from agentfly_core.artifacts.store import Artifact
from agentfly_core.pipeline.playing import PlayedShard
from tasks.rollout import PlayInTurn, Work

Stage = Callable[[int, PlayInTurn], Artifact]
OVER = "the run was interrupted, or a stage failed, before this shard's turn came"


def played_in_turn(shards: Iterable[int], stage: Stage) -> list[Artifact]:
    """What a stage publishes that plays a shard, for one after the other.

    Stages run in two threads, and this one plays what they ask it to, so that Ctrl-C ends that: the
    shard before the one that is played is being stored, which is waited for. Raises what the first
    stage raised that failed; one that waits for its turn then is cancelled.
    """
    turns = [_Turn(shard) for shard in shards]
    with ThreadPoolExecutor(2, "shard") as threads, ExitStack() as ends:
        for turn in turns:
            ends.callback(turn.refuse)
        ends.callback(threads.shutdown, wait=False, cancel_futures=True)
        published = [turn.begin(threads, stage) for turn in turns]
        for turn in turns:
            turn.play()
            for one in published:
                if one.done():
                    one.result()
        return [one.result() for one in published]


class _Turn:
    """What the stage of a shard asks the thread that plays, until it ends."""

    def __init__(self, shard: int) -> None:
        self._shard = shard
        self._asked: SimpleQueue[tuple[Context, Work, Future[PlayedShard]] | None] = SimpleQueue()
        self._awaited: list[Future[PlayedShard]] = []
        self._over = self._refused = False

    def begin(self, threads: ThreadPoolExecutor, stage: Stage) -> Future[Artifact]:
        """Run the stage in one of these threads."""
        published = threads.submit(copy_context().run, stage, self._shard, self._ask)
        published.add_done_callback(lambda _: self._asked.put(None))
        return published

    def play(self) -> None:
        """Do what the stage asks for, again where that fails and it tries again; or see it end."""
        while asked := self._asked.get():
            context, work, played = asked
            try:
                shard = context.run(work)
            except BaseException as error:  # the stage's to see, which may try again
                played.set_exception(error)
                if not isinstance(error, Exception):  # Ctrl-C, say, is this thread's as well
                    raise
            else:
                self._over = True
                played.set_result(shard)
                return

    def refuse(self) -> None:
        """Cancel the stage where it waits, or will."""
        self._refused = True
        for played in [*self._awaited]:
            if not played.done():
                played.set_exception(CancelledError(OVER))

    def _ask(self, work: Work) -> PlayedShard:
        assert not self._over, "a shard is played once"
        played = Future[PlayedShard]()
        self._awaited.append(played)
        try:
            if self._refused:
                raise CancelledError(OVER)
            self._asked.put((copy_context(), work, played))
            return played.result()
        finally:  # nobody else holds the episodes while they are stored
            self._awaited.remove(played)
