"""Messages between the caller and an execution's keeper: JSON with some bytes behind it, never a pickle."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

_HEAD = struct.Struct("!I")
LARGEST_HEADER = 2**20


def packed(header: Mapping[str, Any], blobs: Sequence[bytes] = ()) -> bytes:
    """One message; `header` is JSON."""
    text = json.dumps({**header, "sizes": [len(blob) for blob in blobs]}).encode()
    return b"".join([_HEAD.pack(len(text)), text, *blobs])


def read(file: BinaryIO) -> tuple[dict[str, Any], list[bytes]]:
    """The next message of a file; raises EOFError when there is none."""
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size:
        raise EOFError
    header: dict[str, Any] = json.loads(file.read(_HEAD.unpack(head)[0]))
    return header, [file.read(size) for size in header.pop("sizes")]


async def receive(reader: asyncio.StreamReader, most: int) -> tuple[dict[str, Any], list[bytes]]:
    """The next message of a stream; raises EOFError when it ends first, ValueError when it is above `most` bytes."""
    size = _HEAD.unpack(await reader.readexactly(_HEAD.size))[0]
    if size > LARGEST_HEADER:
        raise ValueError(f"A header of {size} bytes is not one of ours.")
    header: dict[str, Any] = json.loads(await reader.readexactly(size))
    sizes = header.pop("sizes")
    if sum(sizes) > most:
        raise ValueError(f"A message of {sum(sizes)} bytes is above the {most} that were asked for.")
    return header, [await reader.readexactly(size) for size in sizes]
