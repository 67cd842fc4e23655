"""Draws docs/images/buildings.svg, three buildings of the recipe `blueprint`, with its builder:
`python docs/buildings.py`.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from agentfly_core.recipes.blueprint.builder import build
from agentfly_core.recipes.blueprint.families import parts_of
from agentfly_core.recipes.blueprint.scoring import assembled
from agentfly_core.recipes.blueprint.world import BLOCKS, Grid, VoxelWorld

PICTURE = Path(__file__).parent / "images" / "buildings.svg"
ORDERS = (
    "Build the room: length 8, width 6, height 5; walls brick, floor slate, roof tile.",
    "Build the tower: side 4, height 7, mast 5; walls granite, roof copper.",
    "Build the bridge: length 9, width 4, height 4; piers stone, deck planks.",
)
COLOURS = {
    **{"stone": "#9a9a9a", "brick": "#b5553c", "planks": "#c49a5a", "granite": "#a08078"},
    **{"slate": "#5c6470", "copper": "#c8744a", "tile": "#8c3a3a", "iron": "#d8d8d8"},
    **{"glass": "#9cd3e8", "door": "#6b4423", "fence": "#8a6a3a"},
}
SHADES = {"top": 1.0, "south": 0.85, "east": 0.7}
EDGE, TALL, WIDE = 9, 8, 180


def faces(x: int, y: int, z: int) -> dict[str, list[tuple[int, int, int]]]:
    """The corners of the three visible faces of a cell."""
    return {
        "top": [(x, y, z + 1), (x + 1, y, z + 1), (x + 1, y + 1, z + 1), (x, y + 1, z + 1)],
        "south": [(x, y, z), (x + 1, y, z), (x + 1, y, z + 1), (x, y, z + 1)],
        "east": [(x + 1, y, z), (x + 1, y + 1, z), (x + 1, y + 1, z + 1), (x + 1, y, z + 1)],
    }


BESIDE = {"top": (0, 0, 1), "south": (0, -1, 0), "east": (1, 0, 0)}


def polygons(grid: Grid, left: int) -> Iterator[str]:
    """The visible faces of a world, far ones first, seen from the south-east."""
    padded = np.pad(grid, 1)
    cells = sorted(np.argwhere(grid).tolist(), key=lambda cell: (cell[0] - cell[1], cell[2]))
    for x, y, z in cells:
        for side, corners in faces(x, y, z).items():
            east, north, up = BESIDE[side]
            if not padded[x + 1 + east, y + 1 + north, z + 1 + up]:
                colour = shaded(COLOURS[BLOCKS[grid[x, y, z]]], SHADES[side])
                points = " ".join(place(corner, left) for corner in corners)
                yield f'<polygon points="{points}" fill="{colour}"/>'


def place(corner: tuple[int, int, int], left: int) -> str:
    """A corner on the page, in an isometric view."""
    x, y, z = corner
    return f"{left + (x + y) * EDGE},{150 + (x - y) * EDGE // 2 - z * TALL}"


def shaded(colour: str, share: float) -> str:
    """A darker colour."""
    values = (int(colour[n : n + 2], 16) for n in (1, 3, 5))
    return "#" + "".join(f"{round(share * value):02x}" for value in values)


def picture() -> str:
    """The picture as SVG."""
    shapes = list[str]()
    for number, order in enumerate(ORDERS):
        world = VoxelWorld()
        build(world, assembled(parts_of(order)).target)
        shapes += polygons(world.grid, WIDE * number)
    size = f'width="{WIDE * len(ORDERS)}" height="200"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} stroke="#333" stroke-width="0.5">'
    return "\n".join([head, *shapes, "</svg>\n"])


if __name__ == "__main__":
    PICTURE.write_text(picture())
