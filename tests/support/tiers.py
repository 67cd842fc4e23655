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
PLACES = (
    "tests/integration/faults/",
    "tests/integration/services/",
    "tests/integration/docs/test_commands.py",
    "tests/unit/inference/test_in_process.py",
    "tests/unit/models/test_reference.py",
)
"""Where the Makefile looks for such tests: to collect all tests takes 20 seconds a group."""


def mark_by_fixtures(items: Iterable[pytest.Item]) -> None:
    """Add the markers to tests; raises UsageError for a test that the Makefile would not find."""
    for item in items:
        used = getattr(item, "fixturenames", ())
        for marker in [marker for fixture, marker in MARKS.items() if fixture in used]:
            if not item.nodeid.startswith(PLACES):
                raise pytest.UsageError(
                    f"{item.nodeid} has the marker {marker}; move it to tests/integration/services."
                )
            item.add_marker(marker)
