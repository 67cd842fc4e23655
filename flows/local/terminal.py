"""The command as the user typed it, and the terminal, where control characters are escaped.

Printed texts may come from models or files. Their control characters could set the window's title,
fill the clipboard, hide lines or reverse letters.
"""

import json
import select
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import IO, Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from agentfly_core.system.formats.text import CONTROL, guard_logs, visible

typed: ContextVar[str] = ContextVar("typed", default="agentfly")
"""The command as the user typed it, such as "agentfly train quickstart seed=1"."""


class VisibleStream:
    """A text stream that escapes control characters: ESC becomes `\\x1b`."""

    def __init__(self, stream: IO[str]) -> None:
        self.rich_proxied_file = stream
        """The original stream. Rich writes its control sequences here, so they stay unescaped."""

    def write(self, text: str) -> int:
        """Escape the control characters of a text, and write it.

        On a terminal, a carriage return at the beginning or the end of the text is not escaped,
        because progress bars need it.
        """
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
    """Escape control characters in all text that is printed during the `with` block.

    Control characters in logs are escaped, too, even after the `with` block.
    """
    guard_logs()
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (VisibleStream(stream) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def is_unread() -> bool:
    """Whether stdout is a pipe without a reader, because a program such as `head` has ended."""
    errors = select.poll()
    errors.register(sys.stdout.fileno(), 0)
    return bool(errors.poll(0))


class VisibleConsole(Console):
    """A rich console that escapes control characters, prints markup as text and removes links."""

    def __init__(self, stderr: bool = False, **options: Any) -> None:
        stream = sys.stderr if stderr else sys.stdout
        # use the original stream, because control sequences of rich itself must not be escaped
        while inner := getattr(stream, "rich_proxied_file", None):
            stream = inner
        options = {"file": stream, **options}
        super().__init__(markup=False, highlight=False, emoji=False, **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        """Yield the segments of a renderable.

        Control characters in the text are replaced by escapes, and links are removed. Rich's own
        control segments stay unchanged.
        """
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
            else:
                style = segment.style.update_link(None) if segment.style else None
                yield Segment(visible(segment.text), style)


def output(
    document: Callable[[], object],
    view: Callable[[], RenderableType],
    as_json: bool,
    wrap: bool = False,
) -> None:
    """Print a result.

    With `as_json`, print the result of `document` as JSON. Otherwise print the result of `view` on
    the terminal, where long lines are broken only if `wrap` is True.
    """
    if as_json:
        print_json(document())
    else:
        VisibleConsole().print(view(), soft_wrap=not wrap)


def print_json(value: object) -> None:
    """Print a value as one line of JSON, with JSON escapes for control characters."""
    text = json.dumps(value, ensure_ascii=False)
    print(CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text))
