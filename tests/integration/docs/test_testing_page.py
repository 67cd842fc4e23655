"""docs/how-to/test-parts.md lists all names of the testing kit."""

import re

from agentfly_core import testing
from tests.support.project import ROOT

PAGE = (ROOT / "docs/how-to/test-parts.md").read_text()


def test_the_page_has_all_of_the_kit():
    assert {*re.findall(r"`(\w+)\(", PAGE)} == {*testing.__all__}
