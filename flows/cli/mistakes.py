"""Messages about command lines that cannot be parsed."""

from __future__ import annotations

from collections.abc import Sequence

from cyclopts import (
    Argument,
    CycloptsError,
    Group,
    MissingArgumentError,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
    ValidationError,
)


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
    command = "agentfly" if isinstance(error, UnknownCommandError) else f"agentfly {words[0]}"
    return f"{_reason(error)} See `{command} --help`."


def _reason(error: CycloptsError) -> str:
    match error:
        case UnusedCliTokensError(unused_tokens=[*surplus]):
            return f"Unexpected arguments: {' '.join(surplus)}."
        case MissingArgumentError(argument=Argument(name=name, index=int())):
            return f"{name} is missing."
        case ValidationError(group=Group(), exception_message=message):
            return message
    return str(error)
