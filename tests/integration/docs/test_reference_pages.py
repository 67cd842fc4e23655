"""The pages of docs/reference that are made from the code are up to date."""

from pathlib import Path

import pytest

from docs import reference
from tests.support.project import ROOT

TEMPLATES = sorted((ROOT / "docs/reference").glob("*.template"))


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.stem)
def test_a_page_is_made_from_its_template(template: Path) -> None:
    made = reference.page(template)
    assert template.with_suffix(".md").read_text() == made, "run python -m docs.reference"


def test_a_setting_without_a_meaning_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.template").write_text(
        "{agentfly_core.config.experiment:Gates}\n| `failed` | a share |\n"
    )
    with pytest.raises(ValueError, match="unscored"):
        reference.page(tmp_path / "a.template")


def test_the_table_of_a_section_has_types_and_defaults(tmp_path: Path) -> None:
    (tmp_path / "a.template").write_text(
        "{agentfly_core.config.experiment:Adapter}\n"
        "| `rank` | rank |\n| `alpha` | scale |\n| `targets` | layers |\n"
    )
    rows = reference.page(tmp_path / "a.template").splitlines()
    assert "| `rank` | integer (at least 1, at most 512) | `16` | rank |" in rows


def test_the_handwritten_pages_are_short() -> None:
    made = {ROOT / "docs/gallery.md", *(one.with_suffix(".md") for one in TEMPLATES)}
    pages = [page for page in (ROOT / "docs").rglob("*.md") if page not in made]
    assert sum(len(page.read_text().split()) for page in pages) <= 30_000
