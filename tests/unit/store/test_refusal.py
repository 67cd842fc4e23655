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
        (
            answered("NoSuchBucket", 404, FileNotFoundError),
            "there is no such bucket; create it, or mend the address",
        ),
        (
            answered("AccessDenied", 403, PermissionError),
            "access is denied (AccessDenied); look at the credentials",
        ),
        (
            NoCredentialsError(),
            "there are no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        ),
        (
            EndpointConnectionError(endpoint_url="http://127.0.0.1:9"),
            "it does not answer; look at the network",
        ),
        (
            TimeoutError(),
            "look at the network and at AWS_ENDPOINT_URL (TimeoutError, without a message).",
        ),
        (answered("SlowDown", 503), "OSError: no."),
    ],
)
def test_a_refusal_names_store_object_cause_and_remedy(error, message):
    with pytest.raises(Refused) as caught, STORE.asking("read", "runs/demo/run.json"):
        raise error
    assert str(caught.value).startswith(
        "The store s3://agents/exp could not read runs/demo/run.json: "
    )
    assert message in str(caught.value)
    assert str(caught.value).count(".") == str(caught.value).rstrip(".").count(".") + 1


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
