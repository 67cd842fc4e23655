"""Build, check and store datasets of problems in three splits."""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from agentfly_core.config.episodes import SPLITS
from agentfly_core.config.parts import Data
from agentfly_core.config.tasks import DATA as MIXTURE
from agentfly_core.config.tasks import SINGLE
from agentfly_core.records.messages import plain
from agentfly_core.records.parquet import count_rows, read_column, read_problems, write_problems
from agentfly_core.records.trajectory import Message, Problem
from agentfly_core.system.files import write_json
from agentfly_core.system.formats.hashing import digest
from agentfly_core.system.formats.json_value import json_fault
from agentfly_core.system.formats.text import counted, sentence, shown

logger = logging.getLogger(__name__)
QUARANTINED = "quarantined"
REPEATED = "repeated"
RARE = 0.01
"""If a fact (a key of `Problem.facts`) is missing in at most this share (0 to 1) of the problems, a
mistake is likely.
"""


@dataclass(frozen=True, slots=True)
class BadRow:
    """An invalid row: `BadRow("train.jsonl", 17, "field 'question' is missing")`."""

    source: str
    row: int
    fault: str

    def __str__(self) -> str:
        return f"{self.source}, row {self.row}: {self.fault}"


Rows = list[Problem | BadRow]


@dataclass(frozen=True, slots=True)
class Repeated(BadRow):
    """A skipped row that repeats a problem: `Repeated("train.jsonl", 17, "row 3 is the same")`."""


def prepare(data: Data, seed: int, folder: Path, quarantine: Path) -> dict[str, float]:
    """Build and check the splits of a dataset, and write them to `folder` as parquet files.

    The dataset function returns a BadRow for a row that cannot be used, and a Repeated for a row
    that repeats a problem. Both are skipped, and listed in the file `quarantine`. Returns the
    number of bad rows under the key "quarantined", and the number of repeated rows under the key
    "repeated". Counts of 0 are left out.

    If a split still contains a problem of another split, a warning is logged. Raises ValueError if
    there are more bad rows than `data.tolerate_bad_rows`, or if two problems have the same id. Also
    raises ValueError if a split has more problems than expected, or if the number of its problems
    and bad rows together is smaller than expected.
    """
    built = build(data, seed)
    left_out = [row for split in SPLITS for row in built[split] if isinstance(row, BadRow)]
    bad = [row for row in left_out if not isinstance(row, Repeated)]
    if left_out:
        write_json(quarantine, [str(row) for row in left_out])
    if len(bad) > data.tolerate_bad_rows:
        first = sentence("; ".join(map(str, bad[:5])))
        raise ValueError(
            f"{counted(len(bad), 'row')} of the data cannot be used (tolerated: "
            f"{data.tolerate_bad_rows}). The first: {first} The file {quarantine} lists all of "
            "them. Correct the rows, or raise data.tolerate_bad_rows."
        )
    splits = problems_of(data, built)
    for split, problems in splits.items():
        write_problems(folder / f"{split}.parquet", problems)
    for leak in leaks(splits):
        logger.warning("The dataset %s: %s.", data.use, leak)
    write_json(folder / "report.json", {split: len(problems) for split, problems in splits.items()})
    counts = {QUARANTINED: len(bad), REPEATED: len(left_out) - len(bad)}
    return {name: count for name, count in counts.items() if count}


def build(data: Data, seed: int) -> Mapping[str, Sequence[Problem | BadRow]]:
    """Call the dataset function `data.use` and check its result.

    Raises ValueError if a setting of the function is wrong, if the result is not a dict of the
    three splits, or if a problem is invalid.
    """
    given = {"seed": seed, "train": data.train, "validation": data.validation, "test": data.test}
    built: object = data.make(**given)
    if not isinstance(built, Mapping) or set(built) != set(SPLITS):
        what = f"the keys {[*built]}" if isinstance(built, Mapping) else shown(built)
        raise ValueError(f"{data.use} returned {what}, expected a dict with the keys {[*SPLITS]}.")
    for name in SPLITS:
        what, rows = f"{data.use} returned {name}", built[name]
        if not isinstance(rows, Sequence) or isinstance(rows, str):
            raise ValueError(
                f"{data.use} returned {shown(rows)} ({type(rows).__name__}) for {name}, expected a "
                "list of Problem."
            )
        for position, row in enumerate(rows):
            fault = None if isinstance(row, BadRow) else _problem_fault(row, data)
            if fault:
                which = f", the problem {shown(row.id)}" if isinstance(row, Problem) else ""
                raise ValueError(f"{what}[{position}]{which}: {sentence(fault)}")
    return built


def problems_of(
    data: Data, built: Mapping[str, Sequence[Problem | BadRow]]
) -> dict[str, list[Problem]]:
    """Return the problems of each split in `built`, without bad rows (BadRow).

    Raises ValueError if two problems have the same id, if the split train or test is empty, or
    if a split has a wrong number of problems.
    """
    splits = {split: [p for p in built[split] if isinstance(p, Problem)] for split in SPLITS}
    seen: dict[str, str] = {}
    for name, problems in splits.items():
        if not problems and name != "validation":
            raise ValueError(f"The {name} split is empty; raise data.{name} or give more data.")
        for problem in problems:
            if problem.id in seen:
                raise ValueError(
                    f"The problem id {problem.id!r} is used twice, in {seen[problem.id]} and in "
                    f"{name}; give each problem its own id."
                )
            seen[problem.id] = name
    for name in SPLITS:
        returned, expected = len(splits[name]), getattr(data, name)
        usable = [row for row in built[name] if not isinstance(row, Repeated)]
        # bad rows count as problems, repeated rows do not
        if returned > expected or len(usable) < expected:
            raise ValueError(
                f"{data.use} returned {counted(returned, 'problem')} for {name}, expected "
                f"{expected}: set data.{name}={returned}, or return a BadRow for each bad row."
            )
    return splits


def leaks(splits: Mapping[str, Sequence[Problem]]) -> list[str]:
    """Return a sentence for each pair of splits that have problems in common.

    Two problems are the same if `content` returns the same digest for both.
    """
    reports = []
    for other, split in combinations(SPLITS, 2):
        ids = {content(problem): problem.id for problem in splits[other]}
        shared = [(p.id, ids[text]) for p in splits[split] if (text := content(p)) in ids]
        if shared:
            reports.append(
                f"{counted(len(shared), 'problem')} of {split} with the same prompt and facts in "
                f"{other}, such as {' and '.join(shared[0])}"
            )
    return reports


def missing_facts(splits: Mapping[str, Sequence[Problem]]) -> list[str]:
    """Return a sentence for each fact (key of `Problem.facts`) that is missing in a few problems.

    The problems of a task in a split are checked together. A fact is reported if it is missing in
    at most 1 % (RARE) of these problems. A fact that is missing in more problems is not reported,
    because some kinds of problems may not need it.
    """
    reports = []
    for name, problems in splits.items():
        sizes = Counter(problem.task for problem in problems)
        having = Counter((problem.task, fact) for problem in problems for fact in problem.facts)
        for (task, fact), count in having.items():
            if 0 < (missing := sizes[task] - count) <= RARE * sizes[task]:
                first = next(p.id for p in problems if p.task == task and fact not in p.facts)
                reports.append(
                    f"{'' if task == SINGLE else f'{task}: '}{missing} of {sizes[task]:,} {name} "
                    f"problems lack{'s' * (missing == 1)} the fact {fact!r}, which all other "
                    f"problems have; the first is {first}"
                )
    return reports


def spaced_alike(prompt: str) -> str:
    """Replace each stretch of white space by one space, to compare prompts."""
    return " ".join(prompt.split())


def content(problem: Problem) -> str:
    """Return a digest of a problem's prompt, facts and messages.

    If problems of two splits have the same digest, the splits are not independent. Before hashing,
    each stretch of white space in the prompt becomes one space.
    """
    messages = [*map(plain, problem.messages)]
    return digest([spaced_alike(problem.prompt), problem.facts, messages])


def split(folder: Path, name: str, rows: Sequence[int] | None = None) -> list[Problem]:
    """Read one split of a prepared dataset.

    Returns all problems, or only the problems with the row indices in `rows`.
    """
    return read_problems(folder / f"{name}.parquet", rows)


def sizes_by_task(folder: Path) -> dict[str, int]:
    """Return the number of training problems of each task: `{"single": 4096}`.

    Tasks are in the order in which they first occur in train.parquet.
    """
    return dict(Counter(read_column(folder / "train.parquet", "task")))


def shards_of_split(data: Path, name: str, episodes: int, shard: int) -> int:
    """Return the number of shards (batches of episodes) of an evaluation on the split `name`.

    `episodes` is the number of episodes per problem, and `shard` is the number of episodes per
    shard.
    """
    return -(-count_rows(data / f"{name}.parquet") * episodes // shard)


def _problem_fault(row: object, data: Data) -> str | None:
    if not isinstance(row, Problem):
        return f"got {shown(row)} ({type(row).__name__}), expected Problem(id, prompt, facts)"
    for name, text in (("id", row.id), ("prompt", row.prompt)):
        if not isinstance(text, str):
            return f"its {name} is {shown(text)} ({type(text).__name__}), expected text"
        try:
            text.encode()
        except UnicodeEncodeError as error:
            return f"its {name} has a character that UTF-8 does not allow: {error}"
    if row.task != SINGLE and data.use != MIXTURE:
        return (
            f"its task is {row.task!r}; leave the task empty, because only a mixture of tasks "
            "sets it"
        )
    questions = [m.content for m in row.messages if isinstance(m, Message) and m.role == "user"]
    # rewards and reports read only the prompt
    if row.messages and questions[-1:] != [row.prompt]:
        return f"its prompt is {shown(row.prompt)}, expected the text of the last user message"
    if not isinstance(row.facts, Mapping):
        kind = type(row.facts).__name__
        return f"its facts are {shown(row.facts)} ({kind}), expected a dict with text as keys"
    fault = json_fault({**row.facts})
    return fault and f"facts: {fault}"
