import json

import pytest
from hypothesis import given, strategies

from agentfly_core.system.formats import strict_json


def test_a_plain_call_is_read() -> None:
    text = (
        '{"name": "calculator", '
        '"arguments": {"expression": "41+58", "digits": [1, 2.5, true, null]}}'
    )
    assert strict_json.parse(text) == {
        "name": "calculator",
        "arguments": {"expression": "41+58", "digits": [1, 2.5, True, None]},
    }


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{"a": 1', "Expecting"),
        ("", "Expecting value"),
        ('{"a": NaN}', "NaN is no JSON number"),
        ("[-Infinity]", "-Infinity is no JSON number"),
        ("[1e999]", "1e999 is too large"),
        ('{"a": 1, "a": 2}', "'a' is given twice"),
        ('{"b": {"a": 1, "a": 2}}', "'a' is given twice"),
        ("[" * 100_000, "100000 bytes"),
        ('{"a":' * 12_000, "more than 32 levels deep"),
        ("[" * 30_000 + "]" * 30_000, "more than 32 levels deep"),
        ("9" * 5_000, "5000 digits"),
        (r'["\ud83d"]', "surrogate"),
        (r'{"\ud83d": 1}', "surrogate"),
        ('["\ud83d"]', "surrogate"),
        (r'["\u0000"]', "NUL"),
        ('["\0"]', "control character"),
        (json.dumps("x" * 70_000), "70002 bytes"),
        ('{"a": 1} {"a": 2}', "Extra data"),
    ],
)
def test_text_that_cannot_be_written_again_is_refused(text: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        strict_json.parse(text)


def test_a_whole_surrogate_pair_is_one_character() -> None:
    assert strict_json.parse(r'["\ud83d\ude00"]') == ["😀"]


def test_brackets_inside_a_string_are_not_levels() -> None:
    assert strict_json.parse(json.dumps("[" * 1000 + '\\"')) == "[" * 1000 + '\\"'


def test_the_deepest_allowed_value_is_read() -> None:
    assert strict_json.parse("[" * 32 + "]" * 32) is not None


@given(strategies.text())
def test_any_text_is_read_or_raises_value_error(text: str) -> None:
    try:
        value = strict_json.parse(text)
    except ValueError:
        return
    json.dumps(value, allow_nan=False, ensure_ascii=False).encode()


@given(
    strategies.recursive(
        strategies.none()
        | strategies.booleans()
        | strategies.integers(-(10**99), 10**99)
        | strategies.text('ab\\"é😀'),
        lambda inner: (
            strategies.lists(inner) | strategies.dictionaries(strategies.text("ab"), inner)
        ),
        max_leaves=20,
    )
)
def test_values_written_by_python_are_read_back(value: object) -> None:
    assert strict_json.parse(json.dumps(value)) == value
