"""Vaults with six handles. A lamp lights once, and its colour determines the correct next turn."""

import json
import random

from agentfly_core import Environment, Problem, generated, tool

HANDLES = 6
WAYS = ("left", "right", "up", "down")
LAMPS = ("amber", "blue", "green", "pink", "red", "white")


@generated
def vaults(
    seed: int, train: int, validation: int, test: int, first: int = 2, lamps: int = len(LAMPS)
) -> dict[str, list[Problem]]:
    """Make problems for each split, such as

        Problem("vault-4217", "Open vault 4217.", {"lamp": "red", "handle": 3, "direction": "up"})

    A vault has six handles, which are turned one after the other. A lamp lights after the turn of
    one handle. The fact `handle` is the number of this handle, from `first` to 5. The fact `lamp`
    is the lamp's colour. The possible colours are the first `lamps` elements of LAMPS. The fact
    `direction` is the direction in which the next handle must be turned. This direction depends
    only on the colour and on the seed. The model can learn the direction only from rewards. Raises
    ValueError for more than 9,000 vaults.
    """
    if train + validation + test > 9_000:
        raise ValueError(
            f"data.train, data.validation and data.test request {train + validation + test} "
            "problems, but there are only 9,000 vaults. Lower one of them."
        )
    draw = random.Random(seed)
    ways = {lamp: draw.choice(WAYS) for lamp in LAMPS}
    numbers = iter(draw.sample(range(1_000, 10_000), train + validation + test))

    def vault() -> Problem:
        number, lamp = next(numbers), draw.choice(LAMPS[:lamps])
        handle = draw.randrange(first, HANDLES)
        facts = {"lamp": lamp, "handle": handle, "direction": ways[lamp]}
        return Problem(f"vault-{number}", f"Open vault {number}.", facts)

    sizes = {"train": train, "validation": validation, "test": test}
    return {split: [vault() for _ in range(size)] for split, size in sizes.items()}


class Vault(Environment):
    """A vault with six handles, which are turned one after the other.

    A lamp lights once, after the turn of one handle. The fact `handle` is the number of this
    handle. The colour of the lamp determines the correct direction of the next turn. If the next
    turn has this direction, the vault opens after the sixth turn.
    """

    async def reset(self, problem: Problem) -> None:
        """Close the vault and forget all turns."""
        self._facts = problem.facts
        self.ways: list[str] = []

    async def snapshot(self) -> bytes:
        return json.dumps(self.ways).encode()

    async def restore(self, snapshot: bytes) -> None:
        self.ways = json.loads(snapshot)

    def turn(self, way: str) -> str:
        """Turn the next handle in the direction `way`.

        Returns "last handle" after the sixth turn. Otherwise returns a text such as "lamp red" if
        a lamp lights, and "next handle" if no lamp lights.
        """
        self.ways.append(way)
        handle = len(self.ways)
        if handle >= HANDLES:
            return "last handle"
        return f"lamp {self._facts['lamp']}" if handle == self._facts["handle"] else "next handle"

    @property
    def opened(self) -> bool:
        """Whether the vault is open.

        There must be exactly six turns, one turn for each handle. The turn after the lamp lights
        must have the direction that belongs to the lamp's colour. All other turns may have any
        direction.
        """
        handle = self._facts["handle"]
        return len(self.ways) == HANDLES and self.ways[handle] == self._facts["direction"]


@tool
async def turn(way: str, *, vault: Vault) -> str:
    """Turn the next handle of the vault.

    Args:
        way: left, right, up or down
    """
    return vault.turn(way)
