"""Show a prepared dataset: its sizes, skipped rows and some problems."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from agentfly_core.config.episodes import SPLITS
from agentfly_core.records.dataset import QUARANTINED, REPEATED, leaks, split
from agentfly_core.records.messages import plain
from agentfly_core.records.trajectory import Problem
from agentfly_core.store.artifact import Pointer
from agentfly_core.store.stage_metrics import measured
from agentfly_core.store.store import Store
from agentfly_core.system.formats.json_value import JSON
from agentfly_core.system.formats.text import clip

LONGEST = 400


@dataclass(frozen=True, slots=True)
class Preview:
    """Figures of a dataset: `Preview(Pointer("artifacts/prepare/9f2c", "77b0..."), {"train": 4096,
    "test": 1000}, 3, 0, [], {"train": [Problem("add-41-58", ...)]})`.

    `sizes` has the number of problems of each split. `quarantined` is the number of rows that could
    not be used, and `repeated` is the number of rows that repeat a problem. `leaks` has a sentence
    for each pair of splits that have problems in common. `sample` has some problems of each split.
    """

    data: Pointer
    sizes: Mapping[str, int]
    quarantined: int
    repeated: int
    leaks: Sequence[str]
    sample: Mapping[str, Sequence[Problem]]

    def to_json(self) -> dict[str, JSON]:
        """Return the preview as JSON. Texts are not shortened."""
        return {
            "uri": self.data.uri,
            "digest": self.data.digest,
            "problems": self.sizes,
            "quarantined": self.quarantined,
            "repeated": self.repeated,
            "leaks": [*self.leaks],
            "sample": {
                name: [_as_json(problem) for problem in some] for name, some in self.sample.items()
            },
        }

    def lines(self) -> Iterator[str]:
        """Yield the lines of the preview for the terminal. The middle of long texts is cut."""
        for name, size in self.sizes.items():
            yield f"{name:<10} {size:>8,} problem(s)"
        if self.quarantined:
            yield f"{'left out':<10} {self.quarantined:>8,} bad row(s)"
        if self.repeated:
            yield f"{'left out':<10} {self.repeated:>8,} repeated row(s)"
        yield from self.leaks
        for name, problems in self.sample.items():
            for problem in problems:
                yield f"\n{name}: {problem.id}"
                texts = [": ".join(plain(item)) for item in problem.messages]
                yield from (clip(text, LONGEST) for text in texts or [problem.prompt])
                yield clip(json.dumps(problem.facts, ensure_ascii=False), LONGEST)


def _as_json(problem: Problem) -> dict[str, JSON]:
    fields: dict[str, JSON] = {"id": problem.id, "prompt": problem.prompt, "facts": problem.facts}
    messages = [*map(plain, problem.messages)]
    return {**fields, "messages": messages} if messages else fields


def preview(store: Store, data: Pointer, each: int) -> Preview:
    """Return a preview of a dataset.

    Its sample has at most `each` problems of each split. They are evenly spaced over the split.
    """
    folder = store.open(data)
    splits = {name: split(folder, name) for name in SPLITS}
    sizes = {name: len(problems) for name, problems in splits.items()}
    sample = {}
    for name, problems in splits.items():
        count = min(each, sizes[name])
        sample[name] = [problems[sizes[name] * number // count] for number in range(count)]
    counts = measured(store, data).metrics
    quarantined, repeated = (int(counts.get(name, 0)) for name in (QUARANTINED, REPEATED))
    return Preview(data, sizes, quarantined, repeated, leaks(splits), sample)
