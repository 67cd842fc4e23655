"""Refusing secrets in settings, since settings are stored with a run and its artifacts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from agentfly_core.system.formats.json_value import JSON
from agentfly_core.system.formats.text import holders, redact

WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
PASSWORDS = frozenset({"password", "passwords", "passwd", "pwd", "passphrase", "passcode"})
SECRETS = frozenset({"secret", "secrets", "credential", "credentials", "authorization", "bearer"})
SECRETS |= {"apikey", "apikeys", "jwt"} | PASSWORDS
KEYS = frozenset({"api", "access", "account", "auth", "client", "encryption", "private", "service"})
KEYS |= {"signing", "ssh", "subscription"}
OF_TEXT = frozenset({"stop", "start", "begin", "end", "eos", "bos", "pad", "unk", "mask", "sep"})
OF_TEXT |= {"cls", "special", "image", "think", "answer", "tool", "first", "last", "next", "per"}
ABOUT = frozenset({"env", "file", "path", "name", "header", "kind", "type", "length", "count"})


class SecretGiven(ValueError):
    """A setting is a secret; the message names its key and how to pass it instead."""


def refuse_secrets(settings: Mapping[str, JSON], source: str) -> None:
    """Raise SecretGiven for a setting that is a secret by its name, or the environment's."""
    for key, value in _leaves(settings):
        if fault := _fault(key[-1], value):
            name, last = ".".join(key).removesuffix("_env"), "_".join(_words(key[-1]))
            variable = next(iter(holders(str(value))), f"MY_{last.removesuffix('_env').upper()}")
            raise SecretGiven(
                f"{source}: {'.'.join(key)} {fault}. Settings are stored with the run, in MLflow "
                "and in Prefect. Put the secret into an environment variable and give its name "
                f"instead, {name}_env={variable}; the code that takes this setting reads "
                "os.environ."
            )


def _fault(key: str, value: JSON) -> str:
    """Return the fault of a setting as a phrase after its name, or ""."""
    words = _words(key)
    if not isinstance(value, str):
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return "is a secret by its name" if number and PASSWORDS & {*words[-1:]} else ""
    if redact(value) != value:
        name = next(iter(holders(value)), "")
        secret = f"the secret of the environment variable {name}" if name else "a password in a URL"
        return f"holds {secret}"
    if words[-1:] == ["env"] and _is_secret(words[:-1]) and not VARIABLE.fullmatch(value):
        return "is to be the name of an environment variable, and its value cannot be one"
    return "is a secret by its name" if value and _is_secret(words) else ""


def _is_secret(words: Sequence[str]) -> bool:
    """Whether a name is a secret's: `api_key`, `hf_token`; not `max_tokens`, `stop_token`."""
    if not words or words[-1] in ABOUT:
        return False
    keyed = any(first in KEYS and second in ("key", "keys") for first, second in pairwise(words))
    token = words[-1] == "token" and not OF_TEXT & {*words}
    return keyed or token or bool(SECRETS & {*words})


def _words(key: str) -> list[str]:
    """`["api", "key"]` of `api_key`, `api-key` and `apiKey`; none of an import path."""
    return [] if ":" in key else [word.lower() for word in WORDS.findall(key)]


def _leaves(value: JSON, key: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], JSON]]:
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _leaves(item, (*key, str(name)))
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item, key)
    else:
        yield key, value
