"""Which tier a test belongs to, by the fixtures that it uses."""

from collections.abc import Iterable

import pytest

MARKS = {
    "service_address": "service",
    "workers": "learner",
    "prefect_api": "prefect",
    "smollm2": "smollm2",
}
"""The marker of the tests that use a fixture, directly or by other fixtures."""


def mark_by_fixtures(items: Iterable[pytest.Item]) -> None:
    """Add the markers to tests."""
    for item in items:
        used = getattr(item, "fixturenames", ())
        for marker in [marker for fixture, marker in MARKS.items() if fixture in used]:
            item.add_marker(marker)
