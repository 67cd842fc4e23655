"""Problems with a generated folder of files, which the model changes by shell commands."""

import random
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentfly_core import Problem, digest, generated
from agentfly_core.datasets.names import Names, companies, people

ENDINGS = ("csv", "dat", "ini", "json", "log", "md", "tex", "txt")
LEVELS = ("debug", "error", "info", "warn")
KEYS = ("depth", "limit", "port", "retries", "speed", "width")
COLUMNS = ("age", "height", "price", "stock", "weight")
LONGEST = 60
"""The largest number of lines in a generated file."""
MOST_STEMS = 8
"""The largest number of different file names (without extensions) and folder names in a problem."""
PROMPTS: Mapping[str, str] = tomllib.loads(Path(__file__).with_name("prompts.toml").read_text())
"""The prompt of each family (kind of task)."""
HELD_OUT = ("sort", "join")
"""Families (kinds of tasks) that `terminal` uses only if its argument `families` names them."""
LEARNED = tuple(family for family in PROMPTS if family not in HELD_OUT)


Folder = tuple[Mapping[str, str], Mapping[str, str], Mapping[str, str | None]]
"""The files and the prompt of a problem, as three mappings:

- the text of each file before the episode
- the values of the placeholders in the prompt template
- the text of each file that a successful episode adds or changes; None if the episode removes it
"""


@dataclass(frozen=True, slots=True)
class Words:
    """Draws random names and contents for the files of a problem.

    `stems` yields names of folders, and names of files without extensions. No name is repeated.
    `people` has names of people, which are written into the files.
    """

    draw: random.Random
    stems: Iterator[str]
    people: Sequence[str]

    def lines(self, count: int) -> list[str]:
        """Draw `count` lines. Each line is a name, and names may repeat."""
        return self.draw.choices(self.people, k=count)

    def table(self, columns: int) -> dict[str, list[int]]:
        """Draw three to six rows of two-digit numbers, such as `{"anna-berg": [41, 58], ...}`.

        The rows are sorted by name.
        """
        # the command `join` requires sorted rows
        names = self.draw.sample(self.people, self.draw.randint(3, 6))
        return {name: self.draw.choices(range(10, 100), k=columns) for name in sorted(names)}

    def others(self, *endings: str) -> dict[str, str]:
        """Draw two or three further files of a problem, such as `{"amber-mills.log": "..."}`.

        The files have different extensions, and none of the extensions in `endings`.
        """
        left = [ending for ending in ENDINGS if ending not in endings]
        chosen = self.draw.sample(left, self.draw.randint(2, 3))
        return {f"{next(self.stems)}.{ending}": _text(self.lines(3)) for ending in chosen}


def _rename(words: Words) -> Folder:
    old, new = next(words.stems), next(words.stems)
    endings = words.draw.sample(ENDINGS, 2)
    moved = {f"{old}.{ending}": _text(words.lines(2)) for ending in endings}
    changes: dict[str, str | None] = dict.fromkeys(moved)
    changes |= {name.replace(old, new): text for name, text in moved.items()}
    return {**moved, **words.others()}, {"old": old, "new": new}, changes


def _lines(words: Words) -> Folder:
    ending, count = words.draw.choice(ENDINGS), words.draw.randint(4, LONGEST)
    files = {f"{next(words.stems)}.{ending}": _text(words.lines(count)), **words.others(ending)}
    return files, {"ending": ending}, {"count.txt": f"{count}\n"}


def _total(words: Words) -> Folder:
    columns = words.draw.sample(COLUMNS, 3)
    rows = words.table(len(columns))
    table = _text([",".join(["name", *columns]), *_csv(rows)])
    chosen = words.draw.randrange(len(columns))
    total = sum(numbers[chosen] for numbers in rows.values())
    files = {f"{next(words.stems)}.csv": table, **words.others("csv")}
    return files, {"column": columns[chosen]}, {"total.txt": f"{total}\n"}


def _largest(words: Words) -> Folder:
    # all sizes differ, because only one file may be the largest
    sizes = words.draw.sample(range(1, LONGEST // 3), 4)
    endings = words.draw.sample(ENDINGS, len(sizes))
    files = {
        f"{next(words.stems)}.{ending}": _text([str(words.draw.randint(100, 999))] * size)
        for ending, size in zip(endings, sizes, strict=True)
    }
    return files, {}, {"largest.txt": f"{max(files, key=lambda name: len(files[name]))}\n"}


def _extract(words: Words) -> Folder:
    # each level at least once, else no line might match
    levels = [*LEVELS, *words.draw.choices(LEVELS, k=4)]
    words.draw.shuffle(levels)
    lines = [f"{level} {name}" for level, name in zip(levels, words.lines(8), strict=True)]
    level = words.draw.choice(LEVELS)
    files = {f"{next(words.stems)}.log": _text(lines), **words.others("log")}
    matching = _text([line for line in lines if line.startswith(level)])
    return files, {"level": level}, {"found.txt": matching}


def _config(words: Words) -> Folder:
    # the seventh value is the new one, which differs from all others
    keys, values = words.draw.sample(KEYS, 6), words.draw.sample(range(10, 100), 7)
    lines = [f"{key}={value}" for key, value in zip(keys, values, strict=False)]
    names = [f"{next(words.stems)}.{ending}" for ending in words.draw.sample(ENDINGS, 3)]
    files = {name: _text(lines[2 * n : 2 * n + 2]) for n, name in enumerate(names)}
    changed = words.draw.randrange(len(lines))
    key, value, name = keys[changed], str(values[-1]), names[changed // 2]
    text = files[name].replace(lines[changed], f"{key}={value}")
    return files, {"key": key, "value": value}, {name: text}


def _sort(words: Words) -> Folder:
    lines = words.lines(6)
    # some lines occur twice: `sort` without -u would keep both
    lines += words.draw.sample(lines, 2)
    files = {f"{next(words.stems)}.txt": _text(lines), **words.others("txt")}
    return files, {}, {"sorted.md": _text(sorted({*lines}))}


def _move(words: Words) -> Folder:
    ending, stem, folder = words.draw.choice(ENDINGS), next(words.stems), next(words.stems)
    names = [stem, *(next(words.stems) for _ in range(words.draw.randint(1, 2)))]
    moved = {f"{name}.{ending}": _text(words.lines(2)) for name in names}
    changes: dict[str, str | None] = dict.fromkeys(moved)
    changes |= {f"{folder}/{name}": text for name, text in moved.items()}
    return {**moved, **words.others(ending)}, {"stem": stem, "folder": folder}, changes


def _join(words: Words) -> Folder:
    rows = words.table(2)
    # sorted like the output of `ls`, because the columns have the order of the files
    names = sorted(f"{next(words.stems)}.csv" for _ in range(2))
    alone = words.draw.sample(sorted(rows), 2)
    one, other = (
        {name: [numbers[n]] for name, numbers in rows.items() if name != alone[n]} for n in range(2)
    )
    tables = dict(zip(names, (_text(_csv(one)), _text(_csv(other))), strict=True))
    both = {name: numbers for name, numbers in rows.items() if name not in alone}
    return {**tables, **words.others("csv")}, {}, {"joined.txt": _text(_csv(both))}


def _tree(words: Words) -> Folder:
    paths = [f"{next(words.stems)}/{next(words.stems)}" for _ in range(2)]
    files = {"plan.txt": _text(paths), **words.others("txt")}
    return files, {}, dict.fromkeys(paths, "")


_MADE_BY = (_rename, _lines, _total, _largest, _extract, _config, _sort, _move, _join, _tree)
FAMILIES: Mapping[str, Callable[[Words], Folder]] = {one.__name__[1:]: one for one in _MADE_BY}


@generated
def terminal(
    seed: int, train: int, validation: int, test: int, families: tuple[str, ...] = LEARNED
) -> dict[str, list[Problem]]:
    """Make problems for each split. Problem i is of the family `families[i % len(families)]`:

        Problem("rename-3f2a90c1d4e5b678",
            "Rename the files of amber-mills to tall-press, with their endings.", {
                "family": "rename",
                "files": {"amber-mills.log": "anna-berg\\n", "quiet-steel.md": "hugo-lind\\n"},
                "expected": {"tall-press.log": "anna-berg\\n", "quiet-steel.md": "hugo-lind\\n"},
            })

    A family is a kind of task, and FAMILIES has all families. `files` has the files of the folder
    before the episode, and `expected` the files after a successful episode. A name such as
    "amber-mills" or "anna-berg" occurs in only one split. The split of a name does not depend on
    the seed. Raises ValueError for an unknown family, and if `families` is empty.
    """
    if not families or not {*families} <= FAMILIES.keys():
        got = ", ".join(repr(name) for name in families if name not in FAMILIES) or "none"
        raise ValueError(f"data.families: got {got}, expected some of {', '.join(FAMILIES)}.")
    draw, sizes = random.Random(seed), {"train": train, "validation": validation, "test": test}
    stems, names = _hyphenated(companies()), _hyphenated(people())
    return {
        split: [
            _problem(
                families[n % len(families)],
                Words(draw, iter(draw.sample(stems[split], MOST_STEMS)), names[split]),
            )
            for n in range(size)
        ]
        for split, size in sizes.items()
    }


def _problem(family: str, words: Words) -> Problem:
    """Make a problem of a family (kind of task). The id has a digest of the prompt and facts."""
    files, fields, changes = FAMILIES[family](words)
    prompt = PROMPTS[family].format(**fields)
    expected = {name: text for name, text in {**files, **changes}.items() if text is not None}
    facts: dict[str, Any] = {"family": family, "files": files, "expected": expected}
    return Problem(f"{family}-{digest([prompt, facts])[:16]}", prompt, facts)


def _text(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _csv(rows: Mapping[str, Sequence[int]]) -> list[str]:
    return [",".join([name, *map(str, numbers)]) for name, numbers in rows.items()]


def _hyphenated(names: Names) -> Names:
    return {
        split: [name.lower().replace(" ", "-") for name in words] for split, words in names.items()
    }
