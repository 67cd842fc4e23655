"""Damaged files of a store and the results of their readers."""

import io
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console, RenderableType

from agentfly_core.store import store
from agentfly_core.system.formats.checksummed_json import Damaged


@dataclass(frozen=True)
class Damage:
    """Changed bytes of one file."""

    path: Path
    content: bytes
    how: str

    def __str__(self) -> str:
        return f"{self.path}: {self.how}"


def records(folder: Path, *parts: str) -> list[Path]:
    """Every file of these parts of a store that has something in it."""
    paths = (path for part in parts for path in (folder / part).rglob("*"))
    return sorted(path for path in paths if path.is_file() and path.stat().st_size)


def damage(draw: random.Random, path: Path) -> Damage:
    """Cut a file, zero it or a part of it, or flip one of its bits."""
    whole = path.read_bytes()
    place = draw.randrange(len(whole))
    how = draw.choice(("cut", "zeroed", "flipped"))
    if how == "cut":
        return Damage(path, whole[:place], f"cut to {place} bytes")
    start = draw.choice((0, place))
    if how == "zeroed" and any(whole[start:]):
        return Damage(path, whole[:start] + bytes(len(whole) - start), f"zeroed from byte {start}")
    bit = draw.randrange(8)
    changed = whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :]
    return Damage(path, changed, f"bit {bit} of byte {place} flipped")


def printed(shown: RenderableType) -> str:
    console = Console(file=io.StringIO(), width=10_000)
    console.print(shown)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@dataclass(frozen=True)
class Read:
    """Result of a reader, or `Damaged`, and its log output."""

    given: Any
    told: str


def listen(reader: Callable[[], Any], caplog: pytest.LogCaptureFixture) -> Read:
    """Run a reader; any error but Damaged fails the test."""
    caplog.clear()
    try:
        given = reader()
    except Damaged as damage:
        return Read(Damaged, f"{caplog.text}{damage}")
    return Read(given, f"{caplog.text}{given}")


@contextmanager
def suffered(damage: Damage) -> Iterator[None]:
    """A file is damaged within the block, for readers that have not checked it before."""
    whole = damage.path.read_bytes()
    damage.path.unlink()
    damage.path.write_bytes(damage.content)
    for folder in [folder for folder in store._opened if damage.path.is_relative_to(folder)]:
        del store._opened[folder]
    yield
    damage.path.write_bytes(whole)


def check(damage: Damage, read: Read, whole: Any) -> None:
    """Check that a reader returns its result from before the damage, or names the damaged file."""
    named = str(damage.path) in read.told
    if read.given == whole:
        return
    assert named, f"{damage}: not named in {read.told!r}"
    if (
        isinstance(whole, list) and read.given is not Damaged
    ):  # the later keys follow when this artifact has been recomputed
        assert read.given == whole[: len(read.given)], f"{damage}: other keys"
