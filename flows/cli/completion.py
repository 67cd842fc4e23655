"""Completion of experiments, sites, runs and settings in bash, zsh and fish."""

from __future__ import annotations

import re
from pathlib import Path

from cyclopts.completion import CompletionContext


def experiments(_: CompletionContext) -> list[str]:
    """Experiments in ./conf."""
    return sorted(path.stem for path in Path("conf").glob("*.yaml"))


def sites(_: CompletionContext) -> list[str]:
    """Sites in ./conf/site."""
    return sorted(path.stem for path in Path("conf/site").glob("*.yaml"))


def runs(context: CompletionContext) -> list[str]:
    """Runs of the store."""
    from agentfly_core.config.reference import NAME
    from flows.store import store_at

    names = store_at(_typed(context, "--store")).names("runs")
    return [name for name in names if re.fullmatch(NAME, name)]  # the shell prints them


def settings(context: CompletionContext) -> list[str]:
    """Settings of the experiment, or the common ones: `update.learning_rate=`."""
    from agentfly_core.config import loading

    try:
        values = loading.read(_typed(context, "EXPERIMENT")).settings
    except ValueError:
        return [f"{key}=" for key in loading.settings()]
    return [f"{key}=" for key in loading.flat(values.model_dump(mode="json"))]


def _typed(context: CompletionContext, name: str) -> str:
    value = context.get(name)
    return (value.raw or "") if value else ""
