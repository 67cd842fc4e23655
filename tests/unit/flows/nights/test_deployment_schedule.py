"""Nights that should have been and were not."""

from datetime import date

from flows.nights.deployment_schedule import missed_nights


def november(*days):
    return [date(2026, 11, day) for day in days]


def test_nights_between_the_last_one_and_today_were_missed():
    assert missed_nights(november(20, 21, 22, 23), november(19, 20), date(2026, 11, 23)) == (
        november(21, 22)
    )


def test_a_night_counts_once_however_often_it_was_scheduled_and_an_earlier_gap_is_past():
    scheduled = november(17, 18, 21, 21, 22)
    assert missed_nights(scheduled, november(16, 20), date(2026, 11, 22)) == november(21)


def test_without_a_schedule_none_was_missed():
    assert missed_nights([], november(20), date(2026, 11, 23)) == []
