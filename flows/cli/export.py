"""The command that writes a policy for other programs."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from flows.cli.arguments import STORE, Commands
from flows.store import store_at


def add(commands: Commands) -> None:
    """The command that exports a policy."""
    exporting = commands.add("export", export)
    exporting.add_argument("policy", help="run:NAME (its last), run:NAME@STEP (0: the start)")
    exporting.add_argument("folder", type=Path, help="where it is written; must not be there")
    exporting.add_argument("--store", default="", help=STORE)


def export(arguments: Namespace) -> None:
    """Write a policy into a folder."""
    from agentfly_core.pipeline import export as exports

    exports.export(store_at(arguments.store), arguments.policy, arguments.folder)
    print(f"{arguments.folder} holds {arguments.policy}; its README.md says how it is loaded.")
