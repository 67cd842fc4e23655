"""Messages about command lines that cannot be parsed."""

from __future__ import annotations

from collections.abc import Sequence

from cyclopts import CycloptsError, UnknownOptionError


def explain(error: CycloptsError, words: Sequence[str]) -> str:
    """Return the message. An unknown option that is a setting is shown as key=value."""
    if isinstance(error, UnknownOptionError):
        from agentfly_core.config.loading import settings
        from agentfly_core.config.mismatch import settings_like

        option = error.token.keyword or error.token.value
        name, equals, value = option.partition("=")
        if likely := settings_like(name, settings()):
            following = words[words.index(option) + 1 :] if option in words else []
            value = value if equals else next(iter(following), "VALUE")
            return f"There is no option {name}. Settings have no dashes: {likely[0]}={value}"
    return f"{error} See `agentfly {words[0]} --help`."
