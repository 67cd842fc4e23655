"""Refuse secrets in settings, because settings are stored with a run and its artifacts."""

import re
from collections.abc import Iterator, Mapping

from agentfly_core.system.formats.json_value import JSON
from agentfly_core.system.formats.text import holders, redact

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
SECRET_NAME = re.compile(
    r"(^|_)((api|access|client|private|secret|signing|ssh)_?keys?|secrets?|passwords?|passwd|pwd"
    r"|passphrase|credentials?|authorization|bearer|jwt)$"
    r"|^((access|api|auth|bearer|client|github|hf|refresh)_?)?token$"
)
"""Matches names of secrets such as `api_key` and `hf_token`, but not `stop_token`. Names are in
lower case with underscores.
"""


class SecretGiven(ValueError):
    """A setting contains a secret.

    The message names the key of the setting, and an environment variable to use instead.
    """


def refuse_secrets(settings: Mapping[str, JSON], source: str) -> None:
    """Raise SecretGiven if a setting contains a secret.

    The following settings contain a secret:

    - a setting with the name of a secret, such as `api_key`
    - a setting with a password in a URL
    - a setting with the value of a secret environment variable, such as HF_TOKEN
    """
    for key, value in _leaves(settings):
        if fault := _fault(key[-1], value):
            name, last = ".".join(key).removesuffix("_env"), _name(key[-1]).removesuffix("_env")
            # if an environment variable already has this secret, the message names it
            variable = next(iter(holders(str(value))), f"MY_{last.upper()}")
            raise SecretGiven(
                f"{source}: {'.'.join(key)} {fault}. Settings are stored with the run, in MLflow "
                "and in Prefect. Put the secret into an environment variable and set "
                f"{name}_env={variable} instead; your code reads that variable from os.environ."
            )


def _fault(key: str, value: JSON) -> str:
    """Return why a setting is refused as a secret, or an empty text if it is not a secret.

    The text follows the setting's name in a message: "holds a password in a URL".
    """
    text, name = str(value), _name(key)
    if isinstance(value, str) and redact(text) != text:
        variable = next(iter(holders(text)), "")
        secret = f"the secret of the environment variable {variable}"
        return f"holds {secret if variable else 'a password in a URL'}"
    names_variable = name.endswith("_env") and VARIABLE.fullmatch(text)
    by_name = SECRET_NAME.search(name.removesuffix("_env")) and not names_variable
    # a password may consist of digits, but names such as `max_token` usually have numbers
    is_text = isinstance(value, str) or (type(value) is int and "pass" in name)
    return "has a name that is used for secrets" if text and is_text and by_name else ""


def _name(key: str) -> str:
    """Return a name in lower case with underscores: `api-key` and `apiKey` become `api_key`."""
    return re.sub("(?<=[a-z])(?=[A-Z])|-", "_", key).lower()


def _leaves(value: JSON, key: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], JSON]]:
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _leaves(item, (*key, str(name)))
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item, key)
    else:
        yield key, value
