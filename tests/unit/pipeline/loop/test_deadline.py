"""How long work may begin."""

from agentfly_core.pipeline.loop.deadline import Deadline


def test_without_hours_time_is_never_over() -> None:
    until = Deadline.after(None)
    assert (until.hours, until.passed) == (None, False)


def test_time_is_over_after_so_many_hours_and_a_moment_is_always_left() -> None:
    assert not Deadline.after(1000).passed
    assert 999 < (Deadline.after(1000).hours or 0) <= 1000
    over = Deadline.after(-1)
    assert over.passed
    assert 0 < (over.hours or 0) < 1e-6
