"""Tables and JSON on the terminal, without control characters of foreign text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import IO, Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from agentfly_core.system.formats.text import CONTROL, visible
from flows.local.visible_output import VisibleStream


class VisibleConsole(Console):
    """A rich console that escapes control characters, prints markup as text and removes links."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, highlight=False, emoji=False, **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        """Segments of a renderable; only rich's own segments control the terminal."""
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
            else:
                style = segment.style.update_link(None) if segment.style else None
                yield Segment(visible(segment.text), style)

    @property
    def file(self) -> IO[str]:
        """The stream below any VisibleStream."""
        stream = super().file
        while isinstance(stream, VisibleStream):
            stream = stream.rich_proxied_file
        return stream

    @file.setter
    def file(self, stream: IO[str]) -> None:
        self._file = stream


def print_json(value: object) -> None:
    """Print a value as one line of JSON, with JSON escapes for control characters."""
    text = json.dumps(value, ensure_ascii=False)
    print(CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text))
