"""Secrets stay out of records, logs, metrics and messages: their values are replaced wherever text is written."""

from __future__ import annotations

import logging
import os
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

SECRET = re.compile(r"(KEY|SECRET|TOKEN|PASSWORD|PASSWD|CREDENTIALS|AUTH_STRING)$", re.IGNORECASE)
PASSWORD_IN_URL = re.compile(r"(://[^\s/:@]*:)[^\s/@]+(?=@)")
SHORTEST = 8


def redact(text: str) -> str:
    """The text without secrets: `redact("Bearer hf_Xq81kd93")` is "Bearer [HF_TOKEN]" where HF_TOKEN is that.

    A secret is the value, of 8 characters or more, of an environment variable whose name ends with KEY, SECRET, TOKEN,
    PASSWORD, PASSWD, CREDENTIALS or AUTH_STRING; also the password in a URL.
    """
    for name in holders(text):
        text = text.replace(os.environ[name], f"[{name}]")
    return PASSWORD_IN_URL.sub(r"\1[password]", text) if "://" in text else text


def holders(text: str) -> Iterator[str]:
    """The environment variables whose secrets are in a text."""
    for name, value in [*os.environ.items()]:
        if len(value) >= SHORTEST and value in text and SECRET.search(name):
            yield name


@contextmanager
def keeping_secrets() -> Iterator[None]:
    """From this block no secret gets out: neither into a log, whoever writes it, nor in the arguments of an error."""
    made = logging.getLogRecordFactory()

    def make(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = made(*args, **kwargs)
        with suppress(TypeError, ValueError):  # a message that does not fit its arguments is logging's to tell
            record.msg, record.args = redact(record.getMessage()), None
        if record.exc_info and record.exc_info[0]:
            record.exc_text = redact("".join(traceback.format_exception(*record.exc_info)).rstrip())
        return record

    logging.setLogRecordFactory(make)
    try:
        yield
    except Exception as error:  # whatever it is, it passes on
        _redact_error(error)
        raise
    finally:
        logging.setLogRecordFactory(made)


def _redact_error(error: Exception) -> None:
    error.args = tuple(redact(value) if isinstance(value, str) else value for value in error.args)
    if hasattr(error, "__notes__"):
        error.__notes__ = [redact(note) for note in error.__notes__]
