"""What the servers that are asked over https are trusted by."""

from __future__ import annotations

import ssl
from functools import cache

import httpx


@cache
def trusted() -> ssl.SSLContext:
    """The certificates of this machine, read once: a request of its own context takes 24 ms to make
    it, and servers that start are asked many times.
    """
    return httpx.create_ssl_context()
