"""Play rollouts in threads.

Several shards (batches of episodes) are played at once. Later steps may be played ahead of time
with an older policy. The setting rollout.max_staleness limits the age of this policy.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import copy_context
from typing import TypeVar

from agentfly_core.experiment.run_policies import policy_of
from agentfly_core.pipeline.retention import first_policy
from agentfly_core.runs.run import Run
from agentfly_core.store.artifact import Artifact, Pointer

R = TypeVar("R")
T = TypeVar("T")
PlayedStep = tuple[list[Artifact], Artifact]
PlayStep = Callable[[Pointer, int, int], PlayedStep]


@contextmanager
def one_thread(name: str, plays: bool = False) -> Iterator[ThreadPoolExecutor]:
    """Yield a thread pool with one thread.

    At the end of the `with` block, calls that have not started are cancelled. Then the function
    waits until the running call has ended. Set `plays` to True if the thread plays episodes. The
    function then does not wait after an interrupt.
    """
    thread, waits = ThreadPoolExecutor(1, name), True
    try:
        yield thread
    except BaseException as error:  # the error is raised again
        waits = isinstance(error, Exception) or not plays
        raise
    finally:
        thread.shutdown(waits, cancel_futures=True)


def side_by_side(count: int, function: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Apply a function to items, `count` at a time. Return the results in the order of the items.

    If a call raises an error, the calls for the other items are completed. Then the error of the
    first failed item is raised. An interrupt is raised at once, without waiting for running calls.
    If `count` is 1, the calls run one by one in the current thread, and stop at the first error.
    """
    if count < 2:
        return [function(item) for item in items]
    threads = ThreadPoolExecutor(count, "side by side")
    try:
        # in the context of this thread, because in a flow the function is a Prefect task, which
        # needs the flow run
        begun = [threads.submit(copy_context().run, function, item) for item in items]
        # after an error, the calls for the other items still publish their results, and a retry
        # reuses them
        wait(begun)
        return [future.result() for future in begun]
    finally:
        # an interrupt must not wait for shards that are being played
        threads.shutdown(wait=False, cancel_futures=True)


@contextmanager
def ahead(run: Run, play: PlayStep) -> Iterator[Callable[[int, Artifact], PlayedStep]]:
    """Yield a function `played_by(step, policy)`, which returns the episodes of a step.

    Call `played_by` once for each step of the run, in ascending order. The argument `policy` is the
    policy before the step. `play(policy, version, step)` plays a step with a policy; `version` is
    the step after which this policy was published. Let s be `rollout.max_staleness`. Step k is
    played with the policy after step k - 1 - s, or with policy 0 if k - 1 - s is negative. This
    choice does not depend on the speed of rollouts or updates. If s is above 0, a thread plays the
    next steps while the code in the `with` block runs.
    """
    staleness = run.settings.rollout.max_staleness
    if staleness == 0:
        yield lambda step, policy: play(policy, step - 1, step)
        return
    start, steps = run.settings.start_step, run.settings.own_steps
    policies: dict[int, Pointer] = {  # the first steps of a fork sample from policies of its origin
        version: policy_of(run.store, run.name, version)
        for version in range(first_policy(start, staleness), start)
    }
    begun: dict[int, Future[PlayedStep]] = {}
    with one_thread("ahead", plays=True) as thread:

        def played_by(step: int, policy: Artifact) -> PlayedStep:
            policies[step - 1] = policy
            # the newest policy is policy `step - 1`; the last step that samples from it is step +
            # staleness
            last = min(step + staleness, steps[-1])
            for later in range(steps.start + len(begun), last + 1):
                version = max(later - 1 - staleness, 0)
                here = copy_context()
                begun[later] = thread.submit(here.run, play, policies[version], version, later)
            return begun[step].result()

        yield played_by
