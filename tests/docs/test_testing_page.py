"""The tests that docs/testing.md shows pass on the tools of docs/tools.md."""

import re

import pytest

from agentfly_core import testing
from agentfly_core.config.import_path import load
from tests.support.project import ROOT

PAGE = (ROOT / "docs/testing.md").read_text()
BLOCKS = {
    page: "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    for page, text in (("quiz", (ROOT / "docs/tools.md").read_text()), ("test", PAGE))
}


@pytest.mark.parametrize("name", re.findall(r"def (test_\w+)", BLOCKS["test"]))
def test_a_test_of_the_page_passes(tmp_path, monkeypatch, name):
    (tmp_path / "my_quiz.py").write_text(BLOCKS["quiz"])
    (tmp_path / "my_quiz_test.py").write_text(BLOCKS["test"])
    monkeypatch.syspath_prepend(str(tmp_path))
    load(f"my_quiz_test:{name}")()


def test_the_page_has_all_of_the_kit():
    assert {*re.findall(r"`(\w+)\(", PAGE)} == {*testing.__all__}
