"""What object storage answers when it will not do what it is asked, in words that name the store and the object."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError, NoCredentialsError
from botocore.exceptions import ConnectionError as NotReached

from agentfly_core.formats.text import fault, sentence

NO_BUCKET = "there is no such bucket; create it, or mend the address of the store"
NO_CREDENTIALS = "there are no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
NO_ANSWER = "it does not answer; look at the network and at AWS_ENDPOINT_URL"
DENIED = "access is denied ({}); look at the credentials, and at what they may do there"


class Refused(OSError):
    """Object storage did not do what it was asked; `status` is that of HTTP, 0 where there was no answer."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


@contextmanager
def asking(store: str, to: str, name: str) -> Iterator[None]:
    """Ask a store to read, write, ... an object of this name; raises Refused with what to do about it:

    "The store s3://agents/exp could not read runs/demo/run.json: there are no credentials; set AWS_ACCESS_KEY_ID ...".
    That there is no such object passes as FileNotFoundError, and what is wrong with this machine's disk as it is.
    """
    try:
        yield
    except Refused:
        raise
    except (OSError, BotoCoreError) as error:
        why = _why(error)
        if _is_no_refusal(error) and why != NO_BUCKET:
            raise
        raise Refused(sentence(f"The store {store} could not {to} {name}: {why}"), _answer(error)[1]) from error


def _is_no_refusal(error: Exception) -> bool:
    return isinstance(error, FileNotFoundError) or (isinstance(error, OSError) and error.errno == errno.ENOSPC)


def _why(error: Exception) -> str:
    code, status = _answer(error)
    if code == "NoSuchBucket":
        return NO_BUCKET
    if isinstance(error, NoCredentialsError):
        return NO_CREDENTIALS
    if isinstance(error, HTTPClientError | NotReached | ConnectionError | TimeoutError):
        return f"{NO_ANSWER} ({fault(error, 300)})"
    return DENIED.format(code) if status in (401, 403) else fault(error, 300)


def _answer(error: Exception) -> tuple[str, int]:
    """The code and the HTTP status of the server's answer, which s3fs keeps as the cause of its own error."""
    cause = error.__cause__
    if not isinstance(cause, ClientError):
        return "", 0
    return str(cause.response["Error"].get("Code")), int(cause.response["ResponseMetadata"]["HTTPStatusCode"])
