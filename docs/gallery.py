"""Writes docs/gallery.md from the READMEs of the recipes: `python docs/gallery.py`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).with_suffix(".md")
RECIPES = PAGE.parents[1] / "agentfly_core" / "recipes"
HEAD = """\
# Gallery

Pick a ready-made experiment, read an episode of it, and train it:

```
agentfly play quickstart --policy oracle --split test -n 1
agentfly show play:quickstart-1
agentfly train quickstart
```

| experiment | task | held-out success |
|---|---|---|
"""
NOTES = """
Experiments without a named model train a [nano](reference/settings.md#nano) model on two cores,
most of them in minutes. Success is measured before and after reinforcement learning with seed 1;
the intervals are paired 95 % intervals of the difference in points. Each README has all seeds,
controls and settings.

This page is made from the READMEs: `python docs/gallery.py`. The oracle plays the episodes below
(`smollm2-kinds`: a random policy). `|` marks text that the model read, `>` sampled text, `.` events
after the last reply.
"""
_FIGURE = re.compile(r"^\|.*?([\d.]+ → [\d.]+ %[^|]*?) \|", re.MULTILINE)
_EPISODE = re.compile(r"^```\nproblem .*?^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Recipe:
    """A README's title, first paragraph, episode ("" without one) and first learning figure."""

    name: str
    folder: str
    summary: str
    episode: str
    learned: str

    @classmethod
    def read(cls, path: Path) -> Recipe:
        """Read a README; without a figure `learned` is the first sentence of that section."""
        text = path.read_text()
        title, summary, _ = text.split("\n\n", 2)
        learning = text.partition("\n## Learning\n\n")[2].partition("\n## ")[0]
        figure, episode = _FIGURE.search(learning), _EPISODE.search(text)
        return cls(
            title.removeprefix("# "),
            path.parent.name,
            " ".join(summary.split()),
            episode[0] if episode else "",
            figure[1] if figure else re.split(r"[.:]\s", learning)[0].lower(),
        )

    @property
    def row(self) -> str:
        """The row of the page's table."""
        readme = f"../agentfly_core/recipes/{self.folder}/README.md"
        return f"| [`{self.name}`]({readme}) | {self.summary} | {self.learned} |\n"

    @property
    def section(self) -> str:
        """The section with the episode, or ""."""
        return f"\n## {self.name}\n\n{self.summary}\n\n{self.episode}\n" if self.episode else ""


def recipes() -> list[Recipe]:
    """The recipes by name, the quickstart first."""
    read = [Recipe.read(path) for path in RECIPES.glob("*/README.md")]
    return sorted(read, key=lambda recipe: (recipe.name != "quickstart", recipe.name))


def page() -> str:
    """The text of the page."""
    shown = recipes()
    rows, sections = [recipe.row for recipe in shown], [recipe.section for recipe in shown]
    return "".join([HEAD, *rows, NOTES, *sections])


if __name__ == "__main__":
    PAGE.write_text(page())
