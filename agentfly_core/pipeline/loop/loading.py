"""An experiment by its name, with its site and its store."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from agentfly_core.config import loading as experiments
from agentfly_core.experiment import checks
from agentfly_core.experiment.context import ExperimentContext
from agentfly_core.experiment.run_code import of_fork
from agentfly_core.experiment.user_code import code_of, with_code
from agentfly_core.store.store import Store


def load(
    experiment: str,
    overrides: Sequence[str],
    site: str,
    store: str,
    open_store: Callable[[str], Store],
) -> ExperimentContext:
    """An experiment as resolved and checked, and where it runs; raises ValueError with the key of
    a setting that is wrong.

    `open_store` opens the store of the site, or `store`, by path or s3:// uri.
    """
    read = experiments.read(experiment, overrides)
    resolved = checks.check(read.science)
    place = experiments.site(site, store)
    checks.check_place(read.science, place)
    # or DeepSpeed guesses, on the terminal, when it is imported
    os.environ.setdefault("DS_ACCELERATOR", place.device)
    opened = open_store(place.store)
    science = with_code(resolved, code_of(resolved)).science
    science = science.with_code(of_fork(opened, science.code, science.fork, science.data))
    modules = experiments.flat({"code": science.code})
    origin = {**read.origin, **dict.fromkeys(modules, "modules")}
    return ExperimentContext(read.name, resolved, origin, place, opened).on(science)
