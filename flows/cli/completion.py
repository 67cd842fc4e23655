"""Completion of experiments, sites, runs and settings in bash, zsh and fish."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cyclopts.completion import CompletionContext


def experiments(_: CompletionContext) -> list[str]:
    """Experiments in ./conf."""
    return sorted(path.stem for path in Path("conf").glob("*.yaml"))


def sites(_: CompletionContext) -> list[str]:
    """Sites in ./conf/site."""
    return sorted(path.stem for path in Path("conf/site").glob("*.yaml"))


def runs(context: CompletionContext) -> list[str]:
    """Runs of the store."""
    from flows.store import store_at

    return store_at(_typed(context, "--store")).names("runs")


def settings(context: CompletionContext) -> list[str]:
    """Settings of the experiment: `update.learning_rate=`."""
    from agentfly_core.config import loading

    science = loading.read(_typed(context, "EXPERIMENT")).science
    return [f"{key}=" for key in loading.flat(science.model_dump(mode="json"))]


def _typed(context: CompletionContext, name: str) -> str:
    value: Any = context.get(name)
    return (value.raw or "") if value else ""
