"""Calling a URL after each night, so that a service elsewhere notices when no call comes."""

from __future__ import annotations

import http.client
import logging
import os
import urllib.error
import urllib.request
from threading import Thread
from urllib.parse import urlsplit, urlunsplit

LONGEST_S = 20.0
logger = logging.getLogger(__name__)


def ping(variable: str, success: bool) -> None:
    """Call the URL that an environment variable holds; its path plus `/fail` without success.

    So healthchecks.io and what is made like it have it. An empty name calls nothing. A failure is
    logged, without the URL, which may be a secret; returns within LONGEST_S seconds.
    """
    if not variable:
        return
    if not (url := os.environ.get(variable)):
        logger.warning("Nothing was called after the night: %s is not set.", variable)
        return
    caller = Thread(target=_call, args=(variable, url, success), daemon=True)
    caller.start()
    caller.join(LONGEST_S)
    if caller.is_alive():
        logger.warning("The URL in %s did not answer within %g s.", variable, LONGEST_S)


def _call(variable: str, url: str, success: bool) -> None:
    try:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https"):
            logger.warning("What %s holds is no http:// or https:// URL.", variable)
            return
        path = parts.path if success else f"{parts.path.rstrip('/')}/fail"
        # urllib logs nothing; httpx and requests log the URL
        with urllib.request.urlopen(urlunsplit(parts._replace(path=path)), timeout=LONGEST_S / 2):
            pass
    except urllib.error.HTTPError as error:
        logger.warning("The URL in %s answered %d.", variable, error.code)
    except (OSError, ValueError, http.client.HTTPException) as error:  # its text may hold the URL
        logger.warning("The URL in %s could not be called: %s.", variable, type(error).__name__)
