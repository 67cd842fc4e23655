"""The pipeline for scripts and notebooks. These functions use neither Prefect nor MLflow."""

import asyncio
import functools
import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path
from typing import ParamSpec, TypeVar

from agentfly_core.experiment.checks import check_inputs
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.task import require_rewards
from agentfly_core.pipeline import inputs
from agentfly_core.pipeline.loop import loading
from agentfly_core.pipeline.loop.evaluation import Evaluator
from agentfly_core.pipeline.loop.forking import check_start
from agentfly_core.pipeline.loop.stages import Stages
from agentfly_core.pipeline.loop.training import Training, end_after
from agentfly_core.pipeline.play import episodes as plays
from agentfly_core.pipeline.play import solvable
from agentfly_core.pipeline.play.episodes import Played, PlayRequest
from agentfly_core.pipeline.play.mode import Mode
from agentfly_core.records.run_record import Summary
from agentfly_core.runs.run import opened
from agentfly_core.runs.run_request import RunRequest
from agentfly_core.runs.summary import Evaluation
from agentfly_core.store.store import Store
from agentfly_core.system.devices import held, numbered
from agentfly_core.system.formats.text import keeping_secrets
from agentfly_core.system.hardware import WAITING

STATE = Path(".agentfly")
"""The folder in the working directory for logs and for copies from a remote store. The `agentfly`
commands use a folder with the same name.
"""
# these variables prevent libraries from reporting their use over the network; the user can override
# them
QUIET = {"DO_NOT_TRACK": "1", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
P = ParamSpec("P")
R = TypeVar("R")
logger = logging.getLogger(__name__)


def _outside_loop(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function for calls in a notebook. If an event loop is already running, the function
    runs in another thread.
    """

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return function(*args, **kwargs)
        call = functools.partial(function, *args, **kwargs)
        with ThreadPoolExecutor(1, function.__name__) as thread:
            return thread.submit(copy_context().run, call).result()

    return run


@_outside_loop
def load_experiment(
    experiment: str, *overrides: str, site: str = "local", store: str = ""
) -> Experiment:
    """Load an experiment, with overrides of its settings.

    Example: `load_experiment("quickstart", "steps=2", store="/tmp/shop")`. `experiment` is a name
    in `conf/` or the path of a file. `store` is a path or an s3:// uri. By default, the settings of
    the site (the machine) determine the store. Raises ValueError for a wrong setting. The message
    contains the setting's key.
    """
    for name, value in {**QUIET, **WAITING}.items():
        os.environ.setdefault(name, value)
    loaded = loading.load(experiment, overrides, site, store, _store)
    check_inputs(loaded.settings)
    return loaded


prepare = _outside_loop(solvable.prepare)


@_outside_loop
def play(
    experiment: Experiment, policy: str = "", episodes: int = 8, split: str = "train"
) -> Played:
    """Play, score and store episodes of the first problems of a split.

    `episodes` is the number of episodes of all problems together.

    `policy` takes the same values as the option `--policy` of `agentfly play`: `oracle`, `random`,
    `base`, `run:NAME`, ... Raises ValueError if the policy is missing.
    """
    request = PlayRequest(policy, split, episodes, "", "a script")
    prepared = plays.prepare(experiment, request, experiment.settings.rollout.shard)
    return prepared.play(_logs("play"), Mode())


@_outside_loop
def evaluate(experiment: Experiment, policy: str = "") -> Evaluation:
    """Evaluate a policy on the held-out test problems. A stored evaluation is reused.

    `policy` takes the same values as the option `--policy` of `agentfly evaluate`. The default is
    the last policy of the run that `train` makes. Raises ValueError if the policy is missing or the
    experiment lacks rewards.
    """
    require_rewards(experiment.settings.goal)
    chosen = inputs.policy_named(experiment, policy, inputs.base_model)
    data, site = solvable.prepare(experiment), experiment.site
    gpus = numbered(site.sampler_gpus, site.locks)
    with held(gpus, f"the evaluation of {policy or experiment.name}", logger.warning):
        return Evaluator(Stages(), experiment, data).once(chosen, _logs("evaluate"))


@_outside_loop
def train(
    experiment: Experiment, run: str = "", new: bool = False, hours: float | None = None
) -> Summary:
    """Train a run, and return the content of its summary.json. An unfinished run is continued.

    `run` is the name of the run. The default is the experiment's name with a digest of its
    settings. With `new`, the run gets the next free name. After `hours`, the step that is running
    becomes the last step. Raises Locked if another process is writing the run.
    """
    name, site = experiment.run_name(run, new), experiment.site
    RunRequest(experiment, name).check_new()
    with (
        held(numbered(site.gpus, site.locks), f"the run {name}", logger.warning),
        keeping_secrets(),
        opened(experiment, name) as mine,
    ):
        check_start(mine)
        mine.remember_sandbox()
        return Training(mine, _logs(name), Stages(), end_after(hours)).complete()


def _store(uri: str) -> Store:
    return Store.at(uri, (STATE / "cache").resolve())


def _logs(name: str) -> Path:
    folder = (STATE / "logs" / name).resolve()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder
