"""The faults that `python -m benchmarks.planted_faults` plants fit the code as it is."""

import pytest

from benchmarks.planted_faults import CORE, FAULTS, ROOT, Fault


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_has_one_place_and_existing_tests(fault: Fault) -> None:
    assert (ROOT / CORE / fault.module).read_text().count(fault.before) == 1
    assert (ROOT / "tests" / fault.tests.partition("::")[0]).exists()
