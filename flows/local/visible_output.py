"""Escapes control characters of foreign text in printed output.

They could set the window's title, fill the clipboard, hide lines or reverse letters.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO, Any

from agentfly_core.system.formats.text import guard_logs, visible


class VisibleStream:
    """A text stream that writes control characters out: ESC becomes `\\x1b`."""

    def __init__(self, stream: IO[str]) -> None:
        self.rich_proxied_file = stream
        """The stream that rich writes its own control sequences to."""

    def write(self, text: str) -> int:
        """Write a text; on a terminal a carriage return at its ends stays, for progress bars."""
        stream = self.rich_proxied_file
        if not stream.isatty():
            return stream.write(visible(text))
        inner = text.strip("\r")
        start = "\r" if text.startswith("\r") else ""
        end = "\r" if inner and text.endswith("\r") else ""
        return stream.write(f"{start}{visible(inner)}{end}")

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


@contextmanager
def visible_output() -> Iterator[None]:
    """Escape control characters in text printed within the block, except rich's own. In logs they
    stay escaped after the block.
    """
    guard_logs()
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (VisibleStream(stream) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
