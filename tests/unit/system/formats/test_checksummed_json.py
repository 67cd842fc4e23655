"""A file of a run that was damaged is named and never believed."""

import json
from typing import Any

import pytest

from agentfly_core.system.formats.checksummed_json import Damaged, sealed, value_of
from agentfly_core.system.formats.hashing import digest

POINTER = {"uri": "artifacts/warm_start/1f2e/001/policy", "digest": "77b0"}
WHERE = "/lab/runs/demo/start.json"


def text(value: Any) -> bytes:
    return json.dumps(value, indent=1, sort_keys=True).encode()


def other_schema(number: int) -> bytes:
    value = {**POINTER, "schema": number}
    return text({**value, "checksum": digest(value)})


def test_a_sealed_value_is_read_back() -> None:
    assert value_of(text(sealed(POINTER)), WHERE) == POINTER


def test_every_changed_bit_is_refused_with_the_file_name() -> None:
    whole = text(sealed(POINTER))
    for place in range(len(whole) * 8):
        changed = bytearray(whole)
        changed[place // 8] ^= 1 << place % 8
        with pytest.raises(Damaged, match=r"^/lab/runs/demo/start\.json "):
            value_of(bytes(changed), WHERE)


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "not valid JSON"),
        (text(sealed(POINTER))[:40], "not valid JSON"),
        (b"\0" * 200, "not valid JSON"),
        (b'{"uri": "\xe9"}', "'utf-8' codec"),
        (b'{"uri": "a", "uri": "b"}', "'uri' is given twice"),
        (b'{"uri": NaN}', "NaN is no JSON number"),
        (b"[1, 2]", r"it contains \[1, 2\], expected an object"),
        (b"[" * 100_000, "not valid JSON"),
        (text(sealed(POINTER) | {"digest": "1d3e"}), "checksum mismatch"),
        (text(POINTER), "checksum mismatch"),
        (other_schema(7), "the schema is 7, expected 1; read the file"),
    ],
)
def test_damage_of_any_kind_is_named_with_its_file(content: bytes, fault: str) -> None:
    with pytest.raises(Damaged, match=rf"^/lab/runs/demo/start\.json .*{fault}"):
        value_of(content, WHERE)
