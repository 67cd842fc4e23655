"""Access to object storage through fsspec. Addresses that begin with s3:// use s3fs."""

import errno
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from email.utils import parsedate_to_datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import fsspec
from botocore.exceptions import BotoCoreError, ClientError

from agentfly_core.system.formats.checksummed_json import Damaged
from agentfly_core.system.formats.json_value import JSON
from agentfly_core.system.formats.text import fault, sentence

UNMET = {409, 412}
NO_BUCKET = "NoSuchBucket"


class Remote:
    """A store on object storage: `Remote("s3://bucket/exp")`.

    Credentials come from the environment. A failed request raises Refused. The function `guard` is
    called before each write, and raises LockLost if this process has lost the lock of its run.
    `claim` identifies this lock; see `lease.guard`.
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri.rstrip("/")
        self.guard: Callable[[], None] = lambda: None
        self.claim: Mapping[str, JSON] = {}

    @cached_property
    def fs(self) -> Any:
        """The fsspec file system.

        It does not cache lists of files, because other processes may write to the storage, too.
        """
        return fsspec.filesystem(self.uri.partition("://")[0], use_listings_cache=False)

    def path(self, name: str) -> str:
        """Return the path of an object in the file system `fs`: "bucket/exp/NAME"."""
        return f"{self.uri.partition('://')[2]}/{name}"

    @contextmanager
    def asking(self, to: str, name: str) -> Iterator[None]:
        """Convert the errors of a request to Refused.

        `to` is the verb in the error message, such as "read", and `name` is the name of the object.
        Two kinds of errors are not converted: FileNotFoundError for a missing object, and errors of
        a full local disk.
        """
        try:
            yield
        except (OSError, BotoCoreError) as error:
            code, status = _answer(error)
            full = isinstance(error, OSError) and error.errno == errno.ENOSPC
            if (full or isinstance(error, FileNotFoundError)) and code != NO_BUCKET:
                raise
            why = fault(error, 300) + (f" ({code})" if code else "")
            message = sentence(f"Cannot {to} {name} in the store {self.uri}: {why}")
            raise Refused(message, status) from error

    def upload(self, folder: Path, uri: str, names: Sequence[str]) -> None:
        """Upload files in the order of `names`. The last file marks the folder as complete."""
        for name in names:
            self.guard()
            with self.asking("write", f"{uri}/{name}"):
                self.fs.put_file(str(folder / name), self.path(f"{uri}/{name}"))

    def download(self, uri: str, folder: Path, sizes: Mapping[str, int]) -> None:
        """Download the files in `sizes`, which maps their names to their sizes in bytes.

        If a file is missing or has a different size, raises Damaged before the first download.
        """
        with self.asking("list", uri):
            objects = self.fs.find(self.path(uri), detail=True)
        for name, size in sizes.items():
            stored = objects.get(self.path(f"{uri}/{name}"), {}).get("size")
            if stored != size:
                there = "is missing" if stored is None else f"has {stored} bytes"
                raise Damaged(f"{self.uri}/{uri}/{name} {there}, expected {size} bytes.")
        for name in sizes:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            with self.asking("read", f"{uri}/{name}"):
                self.fs.get_file(self.path(f"{uri}/{name}"), str(folder / name))

    def content(self, uri: str) -> bytes | None:
        """Read the bytes of an object, or None if it is missing."""
        with suppress(FileNotFoundError), self.asking("read", uri):
            return bytes(self.fs.cat_file(self.path(uri)))
        return None

    def write(self, uri: str, text: str) -> None:
        """Create an object with this text, or replace the text of an existing object."""
        self.guard()
        with self.asking("write", uri):
            self.fs.pipe_file(self.path(uri), text.encode())

    def tagged(self, uri: str) -> tuple[bytes, str] | None:
        """Read the bytes and the ETag of an object, or return None if the object is missing."""
        with suppress(FileNotFoundError), self.asking("read", uri):
            # The tag is read before the content. If another process writes between the two reads,
            # a later write with this tag fails. In the reverse order, the write would succeed and
            # replace a content that this process has not read.
            tag = str(self.fs.info(self.path(uri))["ETag"])
            return bytes(self.fs.cat_file(self.path(uri))), tag
        return None

    def age(self, uri: str) -> float:
        """Return the seconds since the last change of an object, measured by the store's clock."""
        bucket, _, key = self.path(uri).partition("/")
        with self.asking("read", uri):
            response = self.fs.call_s3("head_object", Bucket=bucket, Key=key)
        # both times come from the store, because this machine's clock may be wrong
        now = parsedate_to_datetime(response["ResponseMetadata"]["HTTPHeaders"]["date"])
        return float((now - response["LastModified"]).total_seconds())

    def replace(self, uri: str, text: str, tag: str) -> bool:
        """Replace the text of an object if the object still has the ETag `tag`.

        Returns whether the object was replaced. Unlike `write`, this method does not check that
        this process still holds its run's lock.
        """
        return self._put(uri, text, IfMatch=tag)

    def create(self, uri: str, text: str) -> bool:
        """Create an object. Returns False if it already exists.

        Unlike `write`, this method does not check that this process still holds its run's lock.
        """
        return self._put(uri, text, IfNoneMatch="*")

    def names(self, uri: str) -> list[str]:
        """Return the names directly below a prefix."""
        with suppress(FileNotFoundError), self.asking("list", uri):
            paths = self.fs.ls(self.path(uri), detail=False)
            return [str(path).rstrip("/").rpartition("/")[2] for path in paths]
        return []

    def remove(self, uri: str, first: str) -> None:
        """Remove all objects of a folder. Files with the name `first` are removed first.

        If `first` is the name of the manifest, an interrupted removal leaves a folder without a
        manifest. Such a folder does not count as complete.
        """
        with self.asking("list", uri):
            paths = self.fs.find(self.path(uri))
        # if the removal is interrupted, an artifact without its manifest does not look complete
        for path in sorted(paths, key=lambda p: (not p.endswith(f"/{first}"), p)):
            self.guard()
            with self.asking("remove", path.removeprefix(self.path(""))):
                self.fs.rm_file(path)

    def _put(self, uri: str, text: str, **condition: str) -> bool:
        bucket, _, key = self.path(uri).partition("/")
        try:
            with self.asking("write", uri):
                self.fs.call_s3(
                    "put_object", Bucket=bucket, Key=key, Body=text.encode(), **condition
                )
        except Refused as refused:
            if refused.status in UNMET:
                return False
            raise
        return True


class Refused(OSError):
    """A request to object storage failed.

    `status` is the HTTP status of the answer, or 0 if the storage did not answer.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def _answer(error: Exception) -> tuple[str, int]:
    """Return the error code and the HTTP status of a failed S3 request. `error` is an error of
    s3fs.

    If the storage did not answer, return "" and 0.
    """
    if isinstance(cause := error.__cause__, ClientError):
        answer = cause.response
        return str(answer["Error"].get("Code")), answer["ResponseMetadata"]["HTTPStatusCode"]
    return "", 0
