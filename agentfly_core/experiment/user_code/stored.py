"""Code as a folder holds it: each module under its file's name, and `code.json` about them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from agentfly_core.experiment.user_code.modules import Code, Module
from agentfly_core.system.files import contained, read_regular, write_json
from agentfly_core.system.formats.checksummed_json import Damaged
from agentfly_core.system.formats.json_value import JSON

INDEX = "code.json"


def write(code: Code, folder: Path) -> None:
    """Write all modules into a folder."""
    for module in code.modules.values():
        path = folder / module.file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(module.content)
    index: dict[str, JSON] = {
        "names": sorted(code.names),
        "suffixes": {name: module.suffix for name, module in code.modules.items()},
        "packages": [name for name, module in code.modules.items() if module.is_package],
        "versions": dict(code.versions),
        "files": dict(code.files),
    }
    write_json(folder / INDEX, index)


def read(folder: Path) -> Code:
    """Load code from a folder and parse it again: syntax trees differ between Python versions."""
    index = json.loads((folder / INDEX).read_text())
    modules = {}
    for name, suffix in index["suffixes"].items():
        empty = Module(name, suffix, name in index["packages"], b"")
        modules[name] = replace(empty, content=_content(folder, empty.file))
    return Code({*index["names"]}, modules, index["versions"], index["files"])


def _content(folder: Path, name: str) -> bytes:
    content = read_regular(contained(folder, name))
    if content is None:
        raise Damaged(f"{folder} has no {name}, which its {INDEX} lists.")
    return content
