"""YAML is read by version 1.2, and written values are read back."""

from pathlib import Path
from typing import Any

import pytest

from agentfly_core.config import loading
from agentfly_core.runs.listing import typed
from agentfly_core.system.formats import strict_yaml
from tests.support.project import ROOT


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("010", 10),
        ("1e-4", 0.0001),
        ("1.5e3", 1500.0),
        ("0o17", 15),
        ("no", "no"),
        ("yes", "yes"),
        ("on", "on"),
        ("1:30", "1:30"),
        ("true", True),
        ("~", None),
    ],
)
def test_values_are_read_by_yaml_1_2(text: str, value: object) -> None:
    assert strict_yaml.parse(text, "here") == value
    assert loading.override(f"seed={text}") == ("seed", value)


def test_a_time_instead_of_a_number_is_refused() -> None:
    with pytest.raises(ValueError, match=r"seed: .*valid integer.*'1:30'"):
        loading.read(str(ROOT / "tests/conf/tiny.yaml"), ["seed=1:30"])


def test_an_error_has_its_place(tmp_path: Path) -> None:
    path = tmp_path / "e1.yaml"
    path.write_text("model: nano\nupdate:\n  epochs: 1\n   batches: 2\n")
    with pytest.raises(ValueError) as error:
        strict_yaml.settings(path)
    assert str(error.value) == (
        f"{path}, line 4, column 11 is invalid YAML: mapping values are not allowed here."
    )


def test_a_repeated_key_is_refused_without_its_value() -> None:
    message = '^here, line 2, column 1 is invalid YAML: found duplicate key "a"\\.$'
    with pytest.raises(ValueError, match=message):
        strict_yaml.parse("a: 1\na: 2\n", "here")


def test_a_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "e.yaml").write_bytes(b"\xef\xbb\xbfsteps: 3\n")
    assert strict_yaml.settings(tmp_path / "e.yaml") == {"steps": 3}


@pytest.mark.parametrize(
    "value",
    ["010", "1e-4", "0o17", "no", "1:30", "null", "2026-11-27", "a\nb", " x: #", 1e-05, [], None],
)
def test_a_written_value_is_read_back(value: Any) -> None:
    assert strict_yaml.parse(strict_yaml.dump({"a": [value]}), "here") == {"a": [value]}
    assert strict_yaml.parse(typed({"a": [value]}), "here") == {"a": [value]}
    assert loading.override(f"a={typed(value)}") == ("a", value)
