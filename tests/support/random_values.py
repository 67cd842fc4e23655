"""Random values such as JSON and YAML can hold."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Draw = random.Random


@dataclass(frozen=True)
class Values:
    """Draws None, True, False, one of some `leaves`, or a list or a mapping of such values.

    `value = Values([(0, 1), ("", "a")], key=lambda draw:
    draw.choice("xyz"))`, then `value(random.Random(1))`.
    """

    leaves: Sequence[Sequence[Any]]
    key: Callable[[Draw], Any]
    sizes: int = 4
    """Lists and mappings have fewer parts than this."""

    def __call__(self, draw: Draw, depth: int = 0) -> Any:
        plain = [(None, True, False), *self.leaves]
        kind = draw.randrange(len(plain) + 2 * (depth < 3))
        if kind < len(plain):
            return draw.choice(plain[kind])
        if kind == len(plain):
            return [self(draw, depth + 1) for _ in range(draw.randrange(self.sizes))]
        return {self.key(draw): self(draw, depth + 1) for _ in range(draw.randrange(self.sizes))}
