"""The deadline for new work."""

from agentfly_core.pipeline.loop.deadline import Deadline


def test_without_hours_there_is_no_deadline() -> None:
    until = Deadline.after(None)
    assert (until.hours, until.passed) == (None, False)


def test_the_deadline_is_after_the_hours_and_leaves_a_moment() -> None:
    assert not Deadline.after(1000).passed
    assert 999 < (Deadline.after(1000).hours or 0) <= 1000
    over = Deadline.after(-1)
    assert over.passed
    assert 0 < (over.hours or 0) < 1e-6
