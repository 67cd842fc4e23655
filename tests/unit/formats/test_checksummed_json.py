"""A file of a run that was damaged is named and never believed."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from agentfly_core.formats import file_shapes
from agentfly_core.formats.checksummed_json import Damaged, sealed, value_of

POINTER = {"uri": "artifacts/warm_start/1f2e/001/policy", "digest": "77b0"}
WHERE = "/lab/runs/demo/start.json"


def text(value: Any) -> bytes:
    return json.dumps(value, indent=1, sort_keys=True).encode()


def test_what_is_sealed_is_read_as_it_was_said() -> None:
    assert value_of(text(sealed(POINTER)), WHERE) == POINTER


def test_each_single_bit_that_changes_is_noticed_and_its_file_is_named() -> None:
    whole = text(sealed(POINTER))
    for place in range(len(whole) * 8):
        changed = bytearray(whole)
        changed[place // 8] ^= 1 << place % 8
        with pytest.raises(Damaged, match=r"^/lab/runs/demo/start\.json "):
            value_of(bytes(changed), WHERE)


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "no JSON"),
        (text(sealed(POINTER))[:40], "no JSON"),
        (b"\0" * 200, "no JSON"),
        (b'{"uri": "\xe9"}', "'utf-8' codec"),
        (b'{"uri": "a", "uri": "b"}', "'uri' is given twice"),
        (b'{"uri": NaN}', "NaN is no JSON number"),
        (b"[1, 2]", r"it holds \[1, 2\], expected an object"),
        (b"[" * 100_000, "no JSON"),
        (text(sealed(POINTER) | {"digest": "1d3e"}), "its checksum"),
        (text({**POINTER, "schema": 2}), "its checksum"),
        (text({**POINTER, "schema": 7}), "its checksum"),
    ],
)
def test_damage_of_any_kind_is_named_with_its_file(content: bytes, fault: str) -> None:
    with pytest.raises(Damaged, match=rf"^/lab/runs/demo/start\.json .*{fault}"):
        value_of(content, WHERE)


def test_a_file_of_an_earlier_release_is_read_and_said_once_to_be_unchecked(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_shapes, "_warned", set())
    caplog.set_level(logging.WARNING)
    manifest = {
        "stage": "score",
        "key": "a41f",
        "inputs": {},
        "files": {"scores": {"sha256": "9f2c", "size": 3}},
    }
    assert value_of(text(POINTER), WHERE) == POINTER
    assert value_of(text(manifest | {"schema": 1}), "/lab/runs/demo/x/MANIFEST.json") == manifest
    assert [record.getMessage() for record in caplog.records] == [
        "/lab/runs/demo/start.json is of a release that wrote no checksums: like all its files, "
        "it is read unchecked."
    ]


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("start.json", {"uri": "artifacts/model", "digesu": "77b0"}, "digest: Field required"),
        ("links.json", {"mlflow_run_ids": "5f0e"}, "mlflow_run_ids: Input should be a valid list"),
        (
            "metrics.json",
            {"step": 7, "time_ms": 1, "metrics": {"reward": "1"}},
            "metrics.reward: Input should",
        ),
        (
            "MANIFEST.json",
            {"stage": "score", "key": 1, "inputs": {}, "files": {}},
            "key: Input should",
        ),
        ("run.json", {}, "uid: Field required"),
        ("summary.json", {"run": "demo"}, "experiment: Field required"),
        ("tags.json", {"tags": []}, "it has no checksum, which each release"),
    ],
)
def test_a_file_of_an_earlier_release_must_have_its_shape(
    name: str, value: Any, fault: str
) -> None:
    with pytest.raises(Damaged, match=f"^/lab/{name} is damaged: {fault}"):
        value_of(text(value), f"/lab/{name}")
