"""docs/how-to/chat-templates.md has a row for each family whose template the tests render."""

import pytest

from tests.support.project import ROOT
from tests.support.template_families import FAMILIES, Family

PAGE = (ROOT / "docs/how-to/chat-templates.md").read_text().splitlines()


@pytest.mark.long
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.template)
def test_a_family_has_its_row(family: Family) -> None:
    assert family.row in PAGE


def test_no_other_family_has_a_row() -> None:
    rows = [line for line in PAGE if line.endswith((" new |", " continues |"))]
    assert len(rows) == len(FAMILIES)
