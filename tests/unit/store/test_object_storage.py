"""A conditional write on object storage."""

import pytest
from botocore.exceptions import ClientError

from agentfly_core.store.object_storage import Remote


class Answering:
    """A file system that answers every write with one HTTP status, in the form of s3fs."""

    def __init__(self, status):
        self.status = status

    def call_s3(self, operation, **_):
        answer = {"Error": {"Code": "Any"}, "ResponseMetadata": {"HTTPStatusCode": self.status}}
        raise OSError("no") from ClientError(answer, operation)


def remote(status):
    storage = Remote("s3://agents/exp")
    storage.fs = Answering(status)
    return storage


@pytest.mark.parametrize("status", [409, 412])
def test_a_conditional_write_returns_false_on_conflict(status):
    assert not remote(status).replace("lock.json", "mine", "tag")
    assert not remote(status).create("lock.json", "mine")


@pytest.mark.parametrize("status", [403, 500, 503])
def test_any_other_refusal_is_an_error_and_no_answer(status):
    with pytest.raises(OSError, match=r"write lock\.json in .*: "):
        remote(status).replace("lock.json", "mine", "tag")
    with pytest.raises(OSError, match=r"write lock\.json in .*: "):
        remote(status).create("lock.json", "mine")
