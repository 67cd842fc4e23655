"""The ready-made tools and rewards."""

import hashlib
import importlib
import pkgutil
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from agentfly_core import rewards, tools
from agentfly_core.authoring.reward import Reward
from agentfly_core.authoring.tool import Tool
from agentfly_core.tools.search import Search
from tests.support.project import ROOT

T = TypeVar("T")
CORPUS = ROOT / "data/raw/encyclopaedia.jsonl"


def shipped_tools() -> list[Tool]:
    """Each tool; the search of a corpus has one, and a name that the shop's does not have."""
    search = replace(search_of(CORPUS), name="search_corpus")
    return [search if one is Search else one for one in shipped(tools, Tool)]


def search_of(corpus: Path, results: int = 3) -> Tool:
    """The search of a corpus in the version that its file has now."""
    version = hashlib.sha256(corpus.read_bytes()).hexdigest()
    return Search.with_settings(corpus=str(corpus), sha256=version, results=results)


def shipped_rewards() -> list[Reward]:
    """Each reward."""
    return shipped(rewards, Reward)


def shipped(package: ModuleType, kind: type[T]) -> list[T]:
    """Everything of a kind that the modules of a package define."""
    modules = (module.name for module in pkgutil.iter_modules(package.__path__))
    names = [f"{package.__name__}.{name}" for name in modules]
    things = [thing for name in names for thing in vars(importlib.import_module(name)).values()]
    return list(dict.fromkeys(thing for thing in things if isinstance(thing, kind)))
