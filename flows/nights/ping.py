"""Call a URL after each night: a service elsewhere notices a missing call."""

from __future__ import annotations

import http.client
import logging
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit, urlunsplit

LIMIT_S = 10.0
logger = logging.getLogger(__name__)


@contextmanager
def pinging(variable: str) -> Iterator[None]:
    """Call the URL in an environment variable at the end, with `/fail` appended to its path
    after an error, as healthchecks.io expects.

    An empty name calls nothing. A failure is logged without the URL, which may be a secret.
    """
    suffix = "/fail"
    try:
        yield
        suffix = ""
    finally:
        if url := os.environ.get(variable):
            _call(variable, url, suffix)
        elif variable:
            logger.warning("Nothing was called after the night: %s is not set.", variable)


def _call(variable: str, url: str, suffix: str) -> None:
    try:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https"):
            raise ValueError("expected an http:// or https:// URL")
        path = parts.path.rstrip("/") + suffix if suffix else parts.path
        # urllib logs nothing; httpx and requests log the URL
        with urllib.request.urlopen(urlunsplit(parts._replace(path=path)), timeout=LIMIT_S):
            pass
    except urllib.error.HTTPError as error:
        logger.warning("The URL in %s answered %d.", variable, error.code)
    except (OSError, ValueError, http.client.HTTPException) as error:  # its text may hold the URL
        logger.warning("The URL in %s could not be called: %s.", variable, type(error).__name__)
