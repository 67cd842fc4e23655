"""The modules that an experiment names, with what these import of the author's own: as they are, or
as they were stored.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from functools import cached_property

from agentfly_core.experiment.user_code import syntax
from agentfly_core.experiment.user_code.imports import imported
from agentfly_core.system.formats import hashing
from agentfly_core.system.formats.json_value import JSON
from agentfly_core.system.module_search import OURS


@dataclass(frozen=True)
class Module:
    """A module as it lies on disk: `Module("my_shop.prices", ".py", False, b"PRICES = ...")`; a
    compiled one ends in `.so`.
    """

    name: str
    suffix: str
    is_package: bool
    content: bytes

    @property
    def file(self) -> str:
        """Its file below the folder that it is imported from: `my_shop/prices.py`."""
        inside = "/__init__" if self.is_package else ""
        return f"{self.name.replace('.', '/')}{inside}{self.suffix}"

    @cached_property
    def digest(self) -> str:
        """What it says; of a compiled one its bytes."""
        return syntax.digest(self.content)

    @cached_property
    def imports(self) -> set[str]:
        """The names that it imports, and the packages that these and it lie in, which are run, too;
        of one of AgentFly's none: what that imports, the versions of stages tell.
        """
        package = self.name if self.is_package else self.name.rpartition(".")[0]
        named = {self.name, *imported(self.content, package)}
        within = set[str]()
        for parts in (name.split(".") for name in named):
            within |= {".".join(parts[:end]) for end in range(1, len(parts) + 1)}
        return set() if ours(self.name) else {name for name in within if not ours(name)}


@dataclass(frozen=True)
class Code:
    """The modules that are named, these and what they import by name, the versions of installed
    packages among those, and digests of the data files that they read: `Code({"my_tools"},
    {"my_tools": Module(...), "my_helpers": Module(...)}, {"numpy": "2.4.1"}, {"prices.csv":
    "9f2c..."})`. Which module reads which file nobody knows, so that each reads all.
    """

    names: Set[str]
    modules: Mapping[str, Module]
    versions: Mapping[str, str]
    files: Mapping[str, str]

    def digest(self, name: str) -> str:
        """16 hex digits of a named module, of what it imports, one from another, and of the data
        files.
        """
        modules, versions = self.behind(name)
        content: list[JSON] = [{module.name: module.digest for module in modules}, versions]
        return hashing.digest([*content, dict(self.files)] if self.files else content)[:16]

    def with_more(self, other: Code) -> Code:
        """The same with what another names in addition."""
        return Code(
            self.names | other.names,
            {**other.modules, **self.modules},
            {**other.versions, **self.versions},
            {**other.files, **self.files},
        )

    def behind(self, name: str) -> tuple[list[Module], dict[str, str]]:
        """A named module and what it imports, and the versions of packages."""
        return reached([name], self.modules.get, self.versions.get)


def reached(
    names: Iterable[str],
    module: Callable[[str], Module | None],
    version: Callable[[str], str | None],
) -> tuple[list[Module], dict[str, str]]:
    """The named modules and what they import, one from another, sorted by name; and the version of
    each package of which no module is found.
    """
    modules = dict[str, Module]()
    waiting, seen = deque(names), {*names}
    while waiting:
        if here := module(name := waiting.popleft()):
            modules[name] = here
            waiting.extend(here.imports - seen)
            seen |= here.imports
    installed = {_top(name) for name in seen} - {_top(name) for name in modules}
    versions = {top: number for top in sorted(installed) if (number := version(top))}
    return [modules[name] for name in sorted(modules)], versions


def ours(name: str) -> bool:
    """Whether a module is AgentFly's."""
    return _top(name) in OURS


def _top(name: str) -> str:
    return name.partition(".")[0]
