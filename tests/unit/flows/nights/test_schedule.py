"""Nights that should have been and were not."""

from datetime import date

from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings

from flows.nights.schedule import missed_nights, missed_since


def november(*days):
    return [date(2026, 11, day) for day in days]


def test_nights_between_the_last_one_and_today_were_missed():
    assert missed_nights(november(20, 21, 22, 23), november(19, 20), date(2026, 11, 23)) == (
        november(21, 22)
    )


def test_a_night_counts_once_however_often_it_was_scheduled_and_an_earlier_gap_is_past():
    scheduled = november(17, 18, 21, 21, 22)
    assert missed_nights(scheduled, november(16, 20), date(2026, 11, 22)) == november(21)


def test_before_the_first_night_none_was_missed():
    assert missed_nights(november(20, 21), [], date(2026, 11, 23)) == []
    assert missed_nights([], november(20), date(2026, 11, 23)) == []


def test_where_prefect_cannot_be_asked_the_night_goes_on(caplog):
    nights = ["nightly-2026-11-20-tiny", "mine"]
    nowhere = {PREFECT_API_URL: "http://127.0.0.1:9/api", PREFECT_CLIENT_MAX_RETRIES: 0}
    with temporary_settings(nowhere):
        assert missed_since("tiny", nights, date(2026, 11, 23)) == []
        assert "The schedule of nights could not be read." in caplog.text
        assert missed_since("tiny", ["mine"], date(2026, 11, 23)) == []
