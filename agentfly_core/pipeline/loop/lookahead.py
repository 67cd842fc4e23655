"""Rollouts that begin before earlier updates have ended, within the allowed staleness."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial

from agentfly_core.experiment.run_policies import policy_of
from agentfly_core.pipeline.retention import first_policy
from agentfly_core.runs.run import Run
from agentfly_core.store.artifact import Artifact, Pointer

PlayedStep = tuple[list[Artifact], Artifact]
PlayStep = Callable[[Pointer, int, int], PlayedStep]


@contextmanager
def ahead(run: Run, play: PlayStep) -> Iterator[Callable[[int, Artifact], PlayedStep]]:
    """Yield `played_by(step, policy)`, called for the run's steps in turn with the policy before
    each.

    `play(policy, version, step)` plays step k with policy k - 1 - s, or the first, where s is
    `rollout.max_staleness`; speed never changes that choice. With s > 0 a thread plays the next
    steps while the block runs; an interrupted block waits for the step in progress.
    """
    staleness = run.settings.rollout.max_staleness
    if staleness == 0:
        yield lambda step, policy: play(policy, step - 1, step)
        return
    with ThreadPoolExecutor(1, "ahead") as thread:
        try:
            yield _Ahead(run, play, thread)
        finally:
            thread.shutdown(cancel_futures=True)


class _Ahead:
    def __init__(self, run: Run, play: PlayStep, thread: ThreadPoolExecutor) -> None:
        self._run, self._play, self._thread = run, play, thread
        self._staleness = run.settings.rollout.max_staleness
        start = run.settings.start_step
        self._policies = {  # a fork's first steps sample from policies of the run it continues from
            version: policy_of(run.store, run.name, version)
            for version in range(first_policy(start, self._staleness), start)
        }
        self._begun: dict[int, Future[PlayedStep]] = {}

    def __call__(self, step: int, policy: Pointer) -> PlayedStep:
        self._policies[step - 1] = policy
        steps = self._run.settings.own_steps
        last = min(step + self._staleness, steps[-1])
        for later in range(steps.start + len(self._begun), last + 1):
            version = max(later - 1 - self._staleness, 0)
            begin = partial(copy_context().run, self._play, self._policies[version], version, later)
            self._begun[later] = self._thread.submit(begin)
        return self._begun[step].result()
