"""Writes docs/gallery.md from the READMEs of the recipes: `python docs/gallery.py`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).with_suffix(".md")
RECIPES = PAGE.parents[1] / "agentfly_core" / "recipes"
HEAD = """\
# Gallery

Pick a ready-made experiment, show an episode, and train it:

```
agentfly play quickstart --policy oracle --split test -n 1
agentfly show play:quickstart-1
agentfly train quickstart
```

Most rows have the success in percent before → after reinforcement learning. The 95 % interval of
the difference in points follows ([details](#how-is-success-measured)).

| experiment | task | result on held-out problems |
|---|---|---|
"""
NOTES = """
If a row names no model, the experiment trains a very small [nano](reference/settings.md#nano) model
on two cores, usually in minutes.

## How is success measured?

Success is the share of solved test problems at temperature 1. The table has the results of seed 1.
Its intervals are paired by problem. A run begins with a warm start (supervised training on
demonstrations). In most experiments, 40 % of the demonstrations are wrong. The success before
reinforcement learning is measured after the warm start. The READMEs also have the results of two
other seeds, and of a control (seed 1 with permuted rewards).

The command was `python -m benchmarks.agents` for `react-calculator`, `code-block`, `folding`,
`planner-executor`, `last-digit` and `debate`. For the others it was `python -m benchmarks.tasks`,
unless their READMEs name another command. The runs used
`AGENTFLY_SAMPLER=transformers AGENTFLY_THREADS=1`, from 24 to 29 November 2026. Other programs ran
beside them. The settings of `react-calculator` and `code-block` were chosen on another seed.

## How hard are the tasks?

Except in `qwen2.5-3b-math`, code generates all problems. The training, validation and test problems
share nothing that identifies an answer, such as persons, file names or worlds. The oracle is the
demonstration policy without mistakes. It acts only on text that it reads. Tests check that the
oracle solves new problems. A policy that reads nothing must fail, except in `meco`, which tests
memorised answers. Number of solved problems, of 100 held-out problems:

| policy | `office` | `search` | `text-shop` | `terminal` |
|---|---|---|---|---|
| `--policy oracle` | 100 | 100 | 100 (mean reward 1.00) | 100 |
| `--policy random` | 0 | 0 | 0 (0.00) | 0 |
| the best constant answer (the same for all problems) | 6 | 6 | 5 (from a single catalogue) | 2 |
| the most frequent answer of each kind of problem | 7 | 7 | 6 (from a single catalogue) | 1 |
| the oracle with the pages or folder of another problem | | 4 | | 1 |

## How do I read the episodes?

The oracle plays the episodes below (`forge` and `smollm2-kinds`: a random policy). `|` marks text
that the policy read, `>` its replies, and `.` events after the last reply. The header has the
problem, the number of the episode among the problem's episodes (`chain`), the reward with its
parts, and how the episode ended. `script` means a demonstration policy.
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
        sentence = re.split(r"[.:]\s", learning)[0]
        return cls(
            title.removeprefix("# "),
            path.parent.name,
            " ".join(summary.split()),
            episode[0] if episode else "",
            figure[1] if figure else sentence[0].lower() + sentence[1:],
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
