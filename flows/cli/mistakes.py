"""Messages about command lines that cannot be parsed."""

from __future__ import annotations

from collections.abc import Sequence

from cyclopts import CycloptsError, UnknownOptionError


def explain(error: CycloptsError, words: Sequence[str]) -> str:
    """Return the message, with the command's help or the right notation of a setting."""
    message = str(error)
    if isinstance(error, UnknownOptionError):
        option = error.token.keyword or ""
        place = words.index(option) if option in words else -1
        if "." in option or option.lstrip("-"):
            value = words[place + 1] if 0 <= place < len(words) - 1 else "VALUE"
            return f"{message} A setting is written without dashes: {option.lstrip('-')}={value}."
    return message
