"""Pictures and open files in values, which models of text cannot read."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Iterable, Mapping

PICTURES = {("PIL", "Image"), ("matplotlib", "Figure")}
"""Classes of pictures, as the name of their package and their own."""
FILES = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8")
"""How files of pictures begin: PNG, JPEG, GIF."""


def is_picture(kind: type) -> bool:
    """Whether a class is one of pictures."""
    return any(
        (base.__module__.partition(".")[0], base.__name__) in PICTURES for base in kind.mro()
    )


def picture_in(value: object) -> str | None:
    """Describe the first picture or open file in a value, or None: `a picture or file (Image)`,
    `a picture (ndarray, 480 x 640 x 3)`, `a picture (bytes)`.
    """
    if is_picture(type(value)) or isinstance(value, io.IOBase | memoryview):
        return f"a picture or file ({type(value).__name__})"
    if isinstance(value, bytes | bytearray) and value.startswith(FILES):
        return f"a picture ({type(value).__name__})"
    # an array of bytes with a side of 3 or 4 channels, of numpy or torch
    shape = tuple(getattr(value, "shape", ()))
    is_bytes = str(getattr(value, "dtype", "")).endswith("uint8")
    if is_bytes and len(shape) == 3 and {shape[0], shape[-1]} & {3, 4}:
        return f"a picture ({type(value).__name__}, {' x '.join(map(str, shape))})"
    held: Iterable[object] = ()
    if isinstance(value, Mapping):
        held = value.values()
    elif isinstance(value, list | tuple | set | frozenset):
        held = value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        held = (getattr(value, field.name, None) for field in dataclasses.fields(value))
    elif hasattr(type(value), "model_fields"):  # a pydantic model
        held = vars(value).values()
    return next(filter(None, map(picture_in, held)), None)
