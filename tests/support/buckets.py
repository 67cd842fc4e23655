"""Object storage in memory."""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Bucket(dict[str, str]):
    """Texts by name, as `Remote` reads and writes them; `ages` holds their ages in seconds by the
    bucket's own clock.
    """

    uri = "s3://bucket"

    def __init__(self, texts: dict[str, str] | None = None) -> None:
        super().__init__(texts or {})
        self.ages: dict[str, float] = {}

    def content(self, uri: str) -> bytes | None:
        return self[uri].encode() if uri in self else None

    def tagged(self, uri: str) -> tuple[bytes, str] | None:
        content = self.content(uri)
        return (content, hashlib.md5(content).hexdigest()) if content is not None else None

    def age(self, uri: str) -> float:
        return self.ages.get(uri, 0.0)

    def create(self, uri: str, text: str) -> bool:
        return self.setdefault(uri, text) is text

    def replace(self, uri: str, text: str, tag: str) -> bool:
        current = self.tagged(uri)
        mine = current is not None and current[1] == tag
        self.update({uri: text} if mine else {})
        return mine

    def names(self, uri: str) -> list[str]:
        return sorted(
            {
                key.removeprefix(f"{uri}/").partition("/")[0]
                for key in self
                if key.startswith(f"{uri}/")
            }
        )


class Objects(dict[str, bytes]):
    """The file system of a bucket, as `Remote` uses s3fs, with the files of a folder as objects."""

    @classmethod
    def of(cls, folder: Path, bucket: str, more: Mapping[str, bytes]) -> Objects:
        """The regular files of a folder, and objects of `more` names, which no folder can have."""
        objects = cls({f"{bucket}/{name}": content for name, content in more.items()})
        for path in folder.rglob("*"):
            if stat.S_ISREG(path.lstat().st_mode):
                objects[f"{bucket}/{path.relative_to(folder).as_posix()}"] = path.read_bytes()
        return objects

    def find(self, path: str, detail: bool = False) -> Any:
        names = [name for name in self if name == path or name.startswith(f"{path}/")]
        return {name: self.info(name) for name in names} if detail else names

    def info(self, path: str) -> dict[str, Any]:
        content = self.cat_file(path)
        return {"size": len(content), "ETag": hashlib.md5(content).hexdigest()}

    def cat_file(self, path: str) -> bytes:
        if path not in self:
            raise FileNotFoundError(path)
        return self[path]

    def get_file(self, path: str, target: str) -> None:
        Path(target).write_bytes(self.cat_file(path))

    def ls(self, path: str, detail: bool) -> list[str]:
        below = {name.removeprefix(f"{path}/").partition("/")[0] for name in self.find(path)}
        return [f"{path}/{name}" for name in sorted(below)]
