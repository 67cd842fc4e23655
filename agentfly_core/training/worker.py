"""The learner's program on each rank, which handles JSON requests from a UNIX socket.

Each worker keeps a policy with its optimizer in memory. The first rank listens at the socket and
broadcasts requests to all ranks.
"""

import argparse
import gc
import logging
import math
import os
import socket
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TextIO

import deepspeed
import torch
import torch.distributed as dist
from deepspeed import DeepSpeedEngine
from deepspeed.accelerator import get_accelerator
from pydantic import TypeAdapter

from agentfly_core.rl.interface import Critic
from agentfly_core.system.formats.text import fault
from agentfly_core.system.service import ServiceLost
from agentfly_core.training import engine as engines
from agentfly_core.training import job as jobs
from agentfly_core.training.data import read_update_data
from agentfly_core.training.distributed import Ranks
from agentfly_core.training.policy import Policy, load_policy
from agentfly_core.training.update import Updater

Send = Callable[[jobs.WorkerReply], None]
REQUEST: TypeAdapter[jobs.WorkerRequest] = TypeAdapter(jobs.WorkerRequest)
PATIENCE, GATHERING = timedelta(days=30), timedelta(seconds=30)


class Worker:
    """A rank (process) of the learner, with its DeepSpeed engine and its reference policy."""

    def __init__(self, ranks: Ranks, memory: engines.Memory, token_budget: int) -> None:
        self.ranks, self.memory, self.token_budget = ranks, memory, token_budget
        self.engine: DeepSpeedEngine | None = None
        self.label: str | None = None
        self.critic: Critic = "none"
        self.policy = ""
        self.reference: tuple[str, Policy] | None = None

    def obey(
        self, request: jobs.WorkerRequest, progress: jobs.OnStep
    ) -> str | dict[str, float] | Callable[[], None] | None:
        """Handle a request, and return its result.

        If the result is a function, the first rank calls it in the background, while the next
        request is handled. A request to save the policy or the learner state contains the label of
        the expected state, such as "step/6". Raises ServiceLost if this state is not in memory.
        """
        if isinstance(request, jobs.AskLabel):
            return self.label
        if isinstance(request, jobs.RunUpdate):
            return self.update(request.job, progress)
        if self.label is None or self.label != request.label:
            raise ServiceLost(
                f"The learner has the state {self.label!r} in memory, not {request.label!r}."
            )
        assert self.engine is not None, "there is a state"
        if isinstance(request, jobs.SaveState):
            state = engines.copy_state(self.engine)
            return partial(engines.write_state, state, self.label, request.folder)
        engines.write_policy(self.engine, Path(self.policy), request.folder)
        return None

    def update(self, job: jobs.UpdateJob, progress: jobs.OnStep) -> dict[str, float]:
        """Run the update of a job, and return its metrics."""
        algorithm = job.algorithm.make()
        engine = self._engine_at(job, algorithm.needs.critic)
        self.label = None
        engines.set_hyper_parameters(engine, job.update, algorithm.needs.critic_rate)
        update = Updater(engine, job, algorithm.after(job.before), self.ranks, self.token_budget)
        data = read_update_data(job, algorithm.needs.drops_equal_groups)

        reference = None
        if algorithm.needs.reference is not None:
            assert job.reference is not None, "the algorithm needs a reference policy"
            if self.reference is None or self.reference[0] != job.reference:
                policy = load_policy(job.reference, job.dtype, base=job.reference_base)
                self.reference = job.reference, policy.requires_grad_(False)
            reference = self.reference[1]
        metrics = update.run(data, reference, progress)
        if job.held_out:
            shown = read_update_data(replace(job, rollouts=(job.held_out,)))
            loss = update.loss_of(shown.batch)
            metrics |= {"train/held_out_loss": loss} if math.isfinite(loss) else {}
        self.label, self.policy = job.end, job.policy
        return metrics

    def forget(self) -> None:
        """Free the memory of the policy, its optimizer and the reference policy."""
        if self.engine is not None:
            engines.close(self.engine)
        self.engine = self.label = self.reference = None
        # collected now, because reference cycles would keep the tensors
        gc.collect()
        get_accelerator().empty_cache()

    def _engine_at(self, job: jobs.UpdateJob, critic: Critic) -> DeepSpeedEngine:
        if self.engine is not None and (self.label, self.critic) == (job.start, critic):
            return self.engine
        if job.learner is None and not job.start.startswith(jobs.FRESH):
            raise ValueError(
                f"The update starts from the state {job.start!r}, but the learner has "
                f"{self.label!r} in memory, and the job has no saved state. First repeat the "
                f"updates that lead to {job.start!r}."
            )
        self.forget()
        engine = engines.fresh(job, self.memory, critic)
        self.engine, self.critic = engine, critic
        if job.learner is not None:
            engines.read_state(engine, job.start, Path(job.learner))
        return engine


def requests(address: str) -> Iterator[tuple[str, Send]]:
    """Yield the requests of clients that arrive at the socket `address`.

    Each request is yielded with a function that sends a reply. A connection has only one request.
    """
    Path(address).unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        while True:
            channel, _ = listener.accept()
            with suppress(OSError), channel:
                lines = channel.makefile("rw")
                if line := lines.readline():
                    yield line, partial(_write, lines)


def _write(lines: TextIO, reply: jobs.WorkerReply) -> None:
    with suppress(OSError):
        print(reply.model_dump_json(), file=lines, flush=True)


def answer(worker: Worker, request: str, reply: Send) -> None:
    """Handle a request on every rank, and reply to the client.

    After an error, the learner and the reference policy are removed from memory. If only some of
    the ranks fail, this process exits, because the other ranks may hang in a collective operation.
    """
    try:
        received = REQUEST.validate_json(worker.ranks.broadcast(request))
        result = worker.obey(
            received, lambda done, total: reply(jobs.StepsDone(done=done, total=total))
        )
        get_accelerator().empty_cache()  # the sampler may use this GPU next
        reply(jobs.Result(value=None if callable(result) else result))
        if callable(result) and worker.ranks.rank == 0:
            threading.Thread(target=_answer_later, args=(result, reply), daemon=True).start()
    except ServiceLost as error:
        reply(jobs.Failure(error=str(error), lost=True))
    except Exception as error:  # caught here, and sent to the client
        traceback.print_exc()
        if not worker.ranks.gather(GATHERING):
            sys.exit(1)
        reply(_failure(error))
        traceback.clear_frames(error.__traceback__)  # frees the tensors in the frames
        worker.forget()


def _answer_later(work: Callable[[], None], reply: Send) -> None:
    try:
        work()
        reply(jobs.Result(value=None))
    except Exception as error:  # caught here, and sent to the client
        traceback.print_exc()
        reply(_failure(error))


def _failure(error: Exception) -> jobs.Failure:
    trace = "".join(traceback.format_exception(error))
    return jobs.Failure(error=f"{fault(error)}\n\nIn the learner:\n{trace}", lost=False)


def join() -> Ranks:
    """Connect this process with the other ranks.

    On a single machine, the ranks find each other through a file. On several machines, they find
    each other through the address in MASTER_ADDR and MASTER_PORT, which DeepSpeed's launcher sets.
    """
    # prevents DeepSpeed from compiling an operator for inference
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    rank, count, here = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_SIZE"))
    meeting = "env://"
    if here == count:
        # the name of the file contains the process id and the start time of the launcher
        launcher = os.getppid() if count > 1 else os.getpid()
        started = Path(f"/proc/{launcher}/stat").read_text().rpartition(")")[2].split()[19]
        meeting = f"file://{tempfile.gettempdir()}/ranks-{launcher}-{started}"
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    get_accelerator().set_device(int(os.environ["LOCAL_RANK"]))
    deepspeed.init_distributed(init_method=meeting, rank=rank, world_size=count, timeout=PATIENCE)
    return Ranks(rank, count, dist.new_group(backend="gloo", timeout=PATIENCE))


def main() -> None:
    """Connect with the other ranks, then handle requests until the process is killed."""
    gc.enable()  # lean_imports has disabled garbage collection
    arguments = argparse.ArgumentParser(description=__doc__)
    for name in ("--socket", "--offload"):
        arguments.add_argument(name, required=True)
    arguments.add_argument("--gradient-checkpointing", action="store_true")
    for name in ("--zero-stage", "--token-budget", "--threads"):
        arguments.add_argument(name, type=int, required=True)
    given = arguments.parse_args()
    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    torch.set_num_threads(given.threads)
    memory = engines.Memory(given.zero_stage, given.offload, given.gradient_checkpointing)
    worker = Worker(join(), memory, given.token_budget)
    if worker.ranks.rank == 0:
        for request, reply in requests(given.socket):
            answer(worker, request, reply)
    while True:
        answer(worker, "", lambda reply: None)


if __name__ == "__main__":
    main()
