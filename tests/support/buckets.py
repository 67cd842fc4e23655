"""Object storage in memory, with conditional writes."""

from __future__ import annotations

import hashlib


class Bucket(dict[str, str]):
    """Texts by name, as `Remote` reads and writes them; `ages` says how old one is by the bucket's
    own clock.
    """

    uri = "s3://bucket"

    def __init__(self, texts: dict[str, str] | None = None) -> None:
        super().__init__(texts or {})
        self.ages: dict[str, float] = {}

    def read(self, uri: str) -> str | None:
        return self.get(uri)

    def content(self, uri: str) -> bytes | None:
        return self[uri].encode() if uri in self else None

    def tagged(self, uri: str) -> tuple[str, str] | None:
        return (self[uri], hashlib.md5(self[uri].encode()).hexdigest()) if uri in self else None

    def age(self, uri: str) -> float:
        return self.ages.get(uri, 0.0)

    def create(self, uri: str, text: str) -> bool:
        return self.setdefault(uri, text) is text

    def replace(self, uri: str, text: str, tag: str) -> bool:
        found = self.tagged(uri)
        mine = found is not None and found[1] == tag
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
