from __future__ import annotations

from hypothesis import given, strategies

from agentfly_core.plaintext import clip, fault


def test_a_long_text_keeps_its_head_and_its_tail() -> None:
    assert clip("head " + "x" * 90 + " tail", 10) == "head \n[... 90 bytes omitted ...]\n tail"


def test_a_text_of_the_allowed_length_is_whole() -> None:
    assert clip("a" * 10, 10) == "a" * 10


def test_what_is_no_utf8_is_replaced() -> None:
    assert clip(b"\xffok", 100) == "\ufffdok"
    assert clip("half \ud83d pair", 100) == "half ? pair"


def test_the_cap_counts_bytes() -> None:
    assert clip("😀" * 3, 11) == "😀\ufffd\n[... 1 bytes omitted ...]\n\ufffd😀"


@given(
    strategies.text(strategies.characters(), max_size=300) | strategies.binary(max_size=300), strategies.integers(0, 60)
)
def test_whatever_comes_in_can_be_encoded(text: str | bytes, max_bytes: int) -> None:
    assert len(clip(text, max_bytes).encode()) <= 3 * max_bytes + 40


def test_a_fault_names_its_kind() -> None:
    assert fault(KeyError("answer")) == "KeyError: 'answer'"
