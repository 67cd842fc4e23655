"""Find the files, functions and classes of an author's modules and of their imports."""

import ast
import hashlib
import importlib.util
import re
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.machinery import ModuleSpec
from pathlib import Path, PurePath

from agentfly_core.system.files import sha256
from agentfly_core.system.formats.hashing import digest
from agentfly_core.system.module_search import INSTALLED, OURS

IMPORT = re.compile(rb"^[ \t]*(?:from[ \t]+(\w+)|import[ \t]+([\w., \t]+))", re.MULTILINE)
LIBRARY = Path(sysconfig.get_path("stdlib")).resolve()
SUFFIXES = (".py", ".so", ".pyd")
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
LARGEST = 1_000_000
"""The maximum size, in bytes, of a package whose functions get separate digests. For a package of
this size, the digests take a third of a second.
"""


@dataclass(frozen=True, slots=True)
class Package:
    """The digests and the imports of a top-level module or package.

        Package({"my_shop.py": "9f2c..."}, {"my_shop.price": "77b0c2a1", ...}, {"my_units"})

    - `files`: the SHA-256 digest of each file
    - `parts`: the digest of each top-level function and class
    - `imports`: the names of the top-level modules that the package imports
    """

    files: dict[str, str] = field(default_factory=dict)
    parts: dict[str, str] = field(default_factory=dict)
    imports: set[str] = field(default_factory=set)


def sources(module: str) -> dict[str, str]:
    """Return the SHA-256 digest of each file of a module's top-level package.

    Packages that the module imports are included, unless they are installed (in site-packages). The
    result is empty for modules of AgentFly and of the standard library. Raises ValueError if a
    source file of the module is missing.
    """
    return {name: own for package in _reached(module) for name, own in package.files.items()}


def _reached(module: str) -> list[Package]:
    """Return the package of a module, and all packages that it imports directly or indirectly.

    Imported packages are left out if they are installed (in site-packages). The result is empty for
    modules of AgentFly and of the standard library.

    Raises ValueError if a source file of the module is missing.
    """
    top = module.partition(".")[0]
    if top in OURS or top in sys.stdlib_module_names:
        return []
    if spec_of(top) is None:
        raise ValueError(
            f"{module} has no source file, for example because it is a notebook. Move the code to "
            f"a module such as {top}.py."
        )
    packages, done, waiting = list[Package](), set[str](), {top}
    while waiting := waiting - done:
        done.add(name := waiting.pop())
        # the module that the experiment names counts even if it is installed
        if name == top or ((spec := spec_of(name)) and not _is_installed(spec)):
            packages.append(package := _package(name))
            waiting |= package.imports
    return packages


def spec_of(top: str) -> ModuleSpec | None:
    """Return the import spec of a top-level module.

    Returns None if the module or its file is missing.
    """
    try:
        spec = importlib.util.find_spec(top)
    except ValueError:  # the main module of a notebook
        return None
    return spec if spec and (spec.has_location or spec.submodule_search_locations) else None


def _is_installed(spec: ModuleSpec) -> bool:
    path = _roots(spec)[0].resolve()
    return not {*INSTALLED}.isdisjoint(path.parts) or path.is_relative_to(LIBRARY)


def _roots(spec: ModuleSpec) -> list[Path]:
    """Return the folders of a package, or the file of a module."""
    return [Path(root) for root in spec.submodule_search_locations or [str(spec.origin)]]


@cache  # cached, because a process runs the code that it imported first
def _package(name: str) -> Package:
    spec = spec_of(name)
    assert spec, f"{name} has no file"
    package, paths = Package(), dict[Path, Path]()
    for root in _roots(spec):
        inside = sorted(root.rglob("*")) if root.is_dir() else [root]
        own = (path for path in inside if path.suffix in SUFFIXES and path.is_file())
        paths |= {path: path.relative_to(root.parent) for path in own}
    is_small = sum(path.stat().st_size for path in paths) <= LARGEST
    for path, relative in paths.items():
        package.files[relative.as_posix()] = sha256(path)
        if path.suffix == ".py":
            package.imports.update(_imports(path.read_bytes()))
        if is_small and not _is_installed(spec):
            package.parts.update(definitions(relative, path.read_bytes()))
    # a package that is large, installed or not written in Python has one digest for all files
    if not package.parts:
        package.parts[name] = digest(package.files)[:8]
    return package


def definitions(path: PurePath, source: bytes) -> dict[str, str]:
    """Return the digest of each top-level function and class of a source file.

    For `my_shop/prices.py`, the result is `{"my_shop.prices": "77b0c2a1", "my_shop.prices.price":
    "9f2c51aa"}`. The entry `my_shop.prices` is the digest of all lines outside of functions and
    classes. If the file cannot be parsed, the only entry is the digest of all lines.
    """
    module = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
    lines = source.splitlines(keepends=True)
    names = [module] * len(lines)
    with suppress(SyntaxError, ValueError):  # a package may contain unused files with syntax errors
        for node in ast.parse(source).body:
            if isinstance(node, DEFINITIONS):
                # the line number of a function excludes its decorators
                first = min(line.lineno for line in (node, *node.decorator_list)) - 1
                last = node.end_lineno or node.lineno
                names[first:last] = [f"{module}.{node.name}"] * (last - first)
    digests = {module: hashlib.sha256()}
    for name, line in zip(names, lines, strict=True):
        digests.setdefault(name, hashlib.sha256()).update(line)
    return {name: digest.hexdigest()[:8] for name, digest in digests.items()}


def _imports(source: bytes) -> set[str]:
    """Return the names of the top-level modules that a source file imports.

    Modules of AgentFly and of the standard library are left out. Imports are found by a regular
    expression, which also matches texts that look like an import. The result may therefore contain
    names of modules that do not exist.
    """
    tops = set[str]()
    for package, modules in IMPORT.findall(source):
        for name in (package, *modules.split(b",")):
            tops.update(first.decode() for first in re.findall(rb"^\s*(\w+)", name))
    return {top for top in tops if top not in OURS and top not in sys.stdlib_module_names}


def parts_of(modules: Iterable[str], data: Mapping[str, str]) -> dict[str, str]:
    """Return the digests of the author's code and data files, shortened to 8 hex digits.

    The code is the packages of `modules` and the packages that they import. Imported packages in
    site-packages are left out. Each top-level function and class has a digest, and each file has a
    digest of its other lines (see `definitions`). A package that is installed or has more than
    1,000,000 bytes has one digest for all its files. `data` contains the full digest of each data
    file.
    """
    packages = (package for module in modules for package in _reached(module))
    own = {name: part for package in packages for name, part in package.parts.items()}
    return own | {name: file[:8] for name, file in data.items()}


def top_of(name: str) -> str:
    """Return the top-level module of a function, class or file: `my_shop` for `my_shop.price` and
    for `my_shop/prices.py`.
    """
    return re.split("[./]", name)[0]
