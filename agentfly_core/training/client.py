"""The client of the DeepSpeed workers: `UpdateJob`s go to a warm process over a UNIX socket, metrics come back."""

from __future__ import annotations

import base64
import json
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from agentfly_core.config.site import Site
from agentfly_core.system.hardware import KEEPING_MEMORY, WAITING, visible
from agentfly_core.system.service import Service, ServiceLost
from agentfly_core.training import multinode
from agentfly_core.training.job import LearnerFailed, LearnerLost, UpdateJob, unwatched

BARE = "agentfly_core.training.without_mlflow"
WORKER = "agentfly_core.training.worker"


def launch(address: str, site: Site) -> tuple[list[str], dict[str, str]]:
    """The command that starts the workers listening at `address`, and what it needs in its environment.

    Raises ValueError for GPUs that are not there, and a hostfile that does not name this machine first.
    """
    threads = max(1, site.threads // max(map(len, site.nodes.values())))
    launcher = ["deepspeed.launcher.launch", *_places(site), "--log_level", "warning", "--no_local_rank"]
    command = [*_on_each_node(site), sys.executable, "-m", BARE, *launcher, "--module", BARE, WORKER]
    command += ["--socket", address]
    command += ["--zero-stage", str(site.zero_stage), "--offload", site.offload]
    command += ["--gradient-checkpointing"] if site.gradient_checkpointing else []
    command += ["--token-budget", str(site.token_budget)]
    environment = {"OMP_NUM_THREADS": str(threads), **WAITING}
    environment |= {"DS_ACCELERATOR": site.device, "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    environment |= KEEPING_MEMORY if site.device == "cpu" else {}
    return [*command, "--threads", str(threads)], environment


def _places(site: Site) -> list[str]:
    """The launcher's arguments that say which ranks there are, where, with which GPUs, and how they meet."""
    first = next(iter(site.nodes))
    world: dict[str, Sequence[int | str]] = {**site.nodes}
    if site.device == "cuda":
        world[first] = visible(site.nodes[first])
    places = ["--world_info", base64.urlsafe_b64encode(json.dumps(world).encode()).decode()]
    if len(world) > 1:
        places += ["--node_rank", "{node}", "--master_addr", first, "--master_port", "{port}"]
    return places


def _on_each_node(site: Site) -> list[str]:
    """What starts a command on several nodes, the first of which must be this machine."""
    if len(site.nodes) == 1:
        return []
    multinode.free_port(next(iter(site.nodes)))
    return [sys.executable, "-m", "agentfly_core.training.multinode", "--nodes", *site.nodes, "--"]


class DeepSpeedLearner:
    """A `Learner` whose weights live in the DeepSpeed workers behind a service; no connection outlives a call."""

    def __init__(self, service: Service, patience: float = 600.0) -> None:
        self._service = service
        self._patience = patience
        self._label: str | None = None

    def label(self) -> str | None:
        """The label of the state in the workers' memory."""
        found: str | None = self._ask({"op": "label"})
        return found

    def update(self, job: UpdateJob, progress: Callable[[int, int], None] = unwatched) -> dict[str, float]:
        """Run an update in the workers."""
        metrics: dict[str, float] = self._ask({"op": "update", "job": asdict(job)}, progress)
        self._label = job.end
        return metrics

    def save_policy(self, folder: Path) -> None:
        """Have the workers write the policy that the last update made."""
        self._ask({"op": "save_policy", "label": self._label, "folder": str(folder.absolute())})

    def save_state(self, folder: Path) -> Callable[[], None]:
        """Have the workers copy the state that the last update made, and then write it."""
        request = {"op": "save_state", "label": self._label, "folder": str(folder.absolute())}
        replies = self._replies(request)
        _result(next(replies))
        return lambda: _result(next(replies))

    def _ask(self, request: dict[str, Any], progress: Callable[[int, int], None] = unwatched) -> Any:
        for reply in self._replies(request):
            if "progress" not in reply:
                return _result(reply)
            progress(*reply["progress"])

    def _replies(self, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """What the workers say to a request; raises LearnerLost where they say no more."""
        with suppress(ConnectionError), closing(self._connect()) as channel, channel.makefile("rw") as lines:
            print(json.dumps(request), file=lines, flush=True)
            for line in lines:
                yield json.loads(line)
        raise LearnerLost(str(self._service.lost(f"died during {request['op']!r}")))

    def _connect(self) -> socket.socket:
        channel = socket.socket(socket.AF_UNIX)

        def ready() -> bool:
            return channel.connect_ex(self._service.address) == 0

        try:
            self._service.wait(ready, self._patience)
        except ServiceLost as error:
            channel.close()
            raise LearnerLost(str(error)) from error
        return channel


def _result(reply: dict[str, Any]) -> Any:
    if "lost" in reply:
        raise LearnerLost(reply["lost"])
    if "error" in reply:
        raise LearnerFailed(f"{reply['error']}\n\nIn the learner:\n{reply['traceback']}")
    return reply["result"]
