"""The experiment, site and store of a command or flow."""

from __future__ import annotations

import os
from collections.abc import Sequence

from agentfly_core.config import loading as experiments
from agentfly_core.experiment import checks
from agentfly_core.experiment.context import ExperimentContext, code_of, with_code
from agentfly_core.experiment.run_code import with_data_of_origin
from flows.store import store_at


def context_of(
    experiment: str, overrides: Sequence[str], site: str, store: str
) -> ExperimentContext:
    """An experiment as resolved, and where it runs; raises ValueError for what cannot be."""
    read = experiments.read(experiment, overrides)
    resolved = checks.check(read.science)
    place = experiments.site(site, store)
    checks.check_place(read.science, place)
    # or DeepSpeed guesses, on the terminal, when it is imported
    os.environ.setdefault("DS_ACCELERATOR", place.device)
    there = store_at(place.store)
    science = with_data_of_origin(there, with_code(resolved, code_of(resolved)).science)
    modules = experiments.flat({"code": science.code})
    origin = {**read.origin, **dict.fromkeys(modules, "modules")}
    return ExperimentContext(read.name, resolved, origin, place, there).on(science)
