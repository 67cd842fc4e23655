import logging

import pytest
from hypothesis import given, strategies

from agentfly_core.system.formats.text import (
    clip,
    counted,
    did_you_mean,
    fault,
    sentence,
    shown,
    warn_once,
)


def test_a_long_text_keeps_its_head_and_its_tail() -> None:
    assert clip("head " + "x" * 90 + " tail", 10) == "head \n[... 90 bytes omitted ...]\n tail"


def test_a_text_of_the_allowed_length_is_whole() -> None:
    assert clip("a" * 10, 10) == "a" * 10


def test_invalid_utf8_is_replaced() -> None:
    assert clip(b"\xffok", 100) == "\ufffdok"
    assert clip("half \ud83d pair", 100) == "half ? pair"


def test_the_cap_counts_bytes() -> None:
    assert clip("😀" * 3, 11) == "😀\ufffd\n[... 1 bytes omitted ...]\n\ufffd😀"


@given(
    strategies.text(strategies.characters(), max_size=300) | strategies.binary(max_size=300),
    strategies.integers(0, 60),
)
def test_any_clipped_text_can_be_encoded(text: str | bytes, max_bytes: int) -> None:
    assert len(clip(text, max_bytes).encode()) <= 3 * max_bytes + 40


def test_an_error_text_starts_with_its_type() -> None:
    assert fault(KeyError("answer")) == "KeyError: 'answer'"


class Broken(Exception):
    def __str__(self) -> str:
        return str(self.args[0])  # it has none

    __repr__ = __str__


def test_an_error_with_a_failing_str_is_described() -> None:
    assert fault(Broken()) == "Broken: str() failed with IndexError"
    assert shown(Broken()) == "repr() failed with IndexError"


def test_an_error_without_text_is_described_by_its_cause() -> None:
    lost = TimeoutError()
    assert fault(lost) == "TimeoutError, without a message"
    lost.__context__ = ConnectionResetError(104, "Connection reset by peer")
    assert (
        fault(lost)
        == "TimeoutError, caused by ConnectionResetError: [Errno 104] Connection reset by peer"
    )
    lost.__cause__ = TimeoutError()
    assert fault(lost) == "TimeoutError, caused by TimeoutError, without a message"


def test_a_group_of_errors_is_described_by_its_first() -> None:
    group = ExceptionGroup(
        "2 judges", [ValueError("no answer"), ExceptionGroup("third", [KeyError("x")])]
    )
    group.add_note("for page 7")
    assert fault(group) == (
        "ExceptionGroup: 2 judges (2 sub-exceptions) (for page 7): ValueError: no answer; "
        "ExceptionGroup: third (1 sub-exception): KeyError: 'x'"
    )


def test_a_huge_text_of_an_error_is_clipped() -> None:
    assert fault(ValueError("x" * 10**7), 40).endswith(
        "\n[... 9999972 bytes omitted ...]\nxxxxxxxxxxxxxxxxxxxx"
    )


def test_a_sentence_ends_with_one_mark() -> None:
    texts = ["no answer", "no answer.", "Did you mean 'seed'?", "ReadError: ", "two lines.\n"]
    assert [sentence(text) for text in texts] == [
        "no answer.",
        "no answer.",
        "Did you mean 'seed'?",
        "ReadError.",
        "two lines.",
    ]


def test_a_mistyped_name_gets_the_nearest_or_all_names() -> None:
    assert did_you_mean("mien", ["mine", "demo"]) == " Did you mean 'mine'?"
    assert did_you_mean("nosuch", ["mine", "demo"]) == " Known: mine, demo."
    assert did_you_mean("nosuch", []) == " There are none."


def test_a_noun_follows_its_number() -> None:
    nouns = [(1, "episode"), (0, "row"), (2, "reply"), (3, "key")]
    assert [counted(*each) for each in nouns] == ["1 episode", "0 rows", "2 replies", "3 keys"]


def test_a_repeated_event_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    for number in range(3):
        warn_once(logging.getLogger("shop"), "Shop.reset() failed", f"KeyError: {number}")
    assert caplog.messages == ["Shop.reset() failed: KeyError: 0"]
