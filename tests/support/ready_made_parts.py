"""The ready-made tools and rewards."""

import hashlib
import importlib
import pkgutil
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from agentfly_core import recipes, rewards, tools
from agentfly_core.authoring.reward import Reward
from agentfly_core.authoring.tool import Tool
from agentfly_core.tools.search import Search
from tests.support.project import ROOT

T = TypeVar("T")
MLE = "agentfly_core.recipes.mle."
CORPUS = ROOT / "data/raw/encyclopaedia.jsonl"


def shipped_tools() -> list[Tool]:
    """Each tool; the search of a corpus has one, and a name that the shop's does not have."""
    search = replace(search_of(CORPUS), name="search_corpus")
    return [search if one is Search else one for one in shipped(Tool, tools, recipes)]


def search_of(corpus: Path, results: int = 3, hides: str = "") -> Tool:
    """The search of a corpus in the version that its file has now."""
    version = hashlib.sha256(corpus.read_bytes()).hexdigest()
    return Search.with_settings(corpus=str(corpus), sha256=version, results=results, hides=hides)


def shipped_rewards() -> list[Reward]:
    """Each reward."""
    return shipped(Reward, rewards, recipes)


def shipped(kind: type[T], *packages: ModuleType) -> list[T]:
    """Everything of a kind that the modules of these packages define, without `mle` if its
    scikit-learn or Gymnasium is not installed.
    """
    absent = () if find_spec("sklearn") and find_spec("gymnasium") else (MLE,)
    names = [
        module.name
        for package in packages
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        if not module.name.startswith(absent)
    ]
    things = [thing for name in names for thing in vars(importlib.import_module(name)).values()]
    return list(dict.fromkeys(thing for thing in things if isinstance(thing, kind)))
