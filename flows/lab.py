"""From what a flow is started with to the experiment and its place."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from agentfly_core.artifacts.store import Store
from agentfly_core.config import loading as experiments
from agentfly_core.runs.run import Lab
from flows.local.state_dirs import settle


def lab_of(experiment: str, overrides: Sequence[str], site: str, store: str) -> Lab:
    """An experiment as resolved, and where it is worked on; raises ValueError for what cannot be."""
    read = experiments.read(experiment, overrides)
    experiments.check(read.science)
    place = experiments.site(site, store)
    experiments.check_place(read.science, place)
    os.environ.setdefault("DS_ACCELERATOR", place.device)  # or DeepSpeed guesses, on the terminal, when it is imported
    return Lab(read.name, read.science, read.origin, place, store_at(place.store))


def store_at(uri: str) -> Store:
    """A store by path or s3:// uri; the site's own when empty."""
    return Store.at(uri or experiments.site("local").store, settle(Path.cwd()).state / "cache")
