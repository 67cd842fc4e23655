from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from agentfly_core.tracking.outbox import Outbox
from tests.support.waiting import LIMIT


class Office:
    """A service that can be away, and that refuses what it does not like."""

    def __init__(self) -> None:
        self.there = True
        self.got: list[str] = []

    def connect(self) -> Office:
        self.check()
        return self

    def answers(self) -> bool:
        return self.there

    def check(self) -> None:
        if not self.there:
            raise RuntimeError("cannot send") from ConnectionRefusedError(111, "Connection refused")

    def take(self, word: str) -> None:
        self.check()
        if word == "bad":
            raise ValueError("I do not take bad words.")
        self.got.append(word)


@pytest.fixture
def office() -> Office:
    return Office()


@pytest.fixture
def outbox(office: Office) -> Iterator[Outbox[Office]]:
    outbox = Outbox(office.connect)
    yield outbox
    outbox.close()


def word(text: str) -> tuple[str, Callable[[Office], None]]:
    return f"the word {text}", lambda office: office.take(text)


def test_everything_arrives_in_the_order_it_was_put(office: Office, outbox: Outbox[Office]) -> None:
    for text in "abcdef":
        outbox.put(*word(text))
    assert not outbox.flush(deadline=LIMIT)
    assert office.got == list("abcdef")


def test_putting_does_not_wait_for_a_service_that_hangs(
    office: Office, outbox: Outbox[Office]
) -> None:
    hanging, released = threading.Event(), threading.Event()

    def hang(office: Office) -> None:
        hanging.set()
        released.wait(LIMIT)

    outbox.put("a call that hangs", hang)
    assert hanging.wait(LIMIT)
    outbox.put(*word("a"))
    unsent = outbox.flush(deadline=0.01)
    released.set()
    assert unsent.waiting == ("a call that hangs", "the word a")
    assert not outbox.flush(deadline=LIMIT)
    assert office.got == ["a"]


def test_what_is_put_while_the_service_is_away_arrives_once_when_it_is_back(
    office: Office, outbox: Outbox[Office]
) -> None:
    office.there = False
    outbox.put(*word("a"))
    outbox.put(*word("b"))
    assert outbox.flush(deadline=LIMIT).waiting == ("the word a", "the word b")
    assert office.got == []
    office.there = True
    assert not outbox.flush(deadline=LIMIT)
    assert office.got == ["a", "b"]


def test_the_reason_is_what_lies_at_the_bottom_of_the_error(
    office: Office, outbox: Outbox[Office]
) -> None:
    office.there = False
    outbox.put(*word("a"))
    assert (
        outbox.flush(deadline=LIMIT).reason
        == "ConnectionRefusedError: [Errno 111] Connection refused"
    )


def test_a_refused_call_is_named_and_does_not_hold_up_the_others(
    office: Office, outbox: Outbox[Office]
) -> None:
    for text in ("a", "bad", "b", "bad", "c"):
        outbox.put(*word(text))
    unsent = outbox.flush(deadline=LIMIT)
    assert unsent.waiting == ()
    assert unsent.refused == ("the word bad (ValueError: I do not take bad words.)",) * 2
    assert office.got == ["a", "b", "c"]


def test_nothing_is_sent_after_closing(office: Office, outbox: Outbox[Office]) -> None:
    outbox.close()
    outbox.put(*word("a"))
    assert outbox.flush(deadline=0.01).waiting == ("the word a",)
    assert office.got == []
