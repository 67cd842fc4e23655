"""Error messages when object storage refuses a request."""

import errno

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError

from agentfly_core.store.object_storage import Refused, Remote

STORE = Remote("s3://agents/exp")


def answered(code, status, kind=OSError):
    """An error of s3fs: its own, with the server's answer as its cause."""
    error = kind("no")
    answer = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    error.__cause__ = ClientError(answer, "GetObject")
    return error


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (answered("NoSuchBucket", 404, FileNotFoundError), "(NoSuchBucket)."),
        (answered("AccessDenied", 403, PermissionError), "PermissionError: no (AccessDenied)."),
        (NoCredentialsError(), "NoCredentialsError: Unable to locate credentials."),
        (EndpointConnectionError(endpoint_url="http://localhost:9"), 'URL: "http://localhost:9".'),
        (TimeoutError(), "TimeoutError, without a message."),
        (answered("SlowDown", 503), "OSError: no (SlowDown)."),
    ],
)
def test_a_refusal_names_store_object_and_cause(error, message):
    with pytest.raises(Refused) as caught, STORE.asking("read", "runs/demo/run.json"):
        raise error
    assert str(caught.value).startswith(
        "Cannot read runs/demo/run.json in the store s3://agents/exp: "
    )
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError("no such key"),
        OSError(errno.ENOSPC, "No space left on device"),
        KeyError("a bug"),
    ],
)
def test_missing_objects_and_full_disks_are_not_refusals(error):
    with (
        pytest.raises(type(error)) as caught,
        STORE.asking("read", "runs/demo/run.json"),
    ):
        raise error
    assert caught.value is error
