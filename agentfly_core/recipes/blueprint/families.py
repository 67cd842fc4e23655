"""Five families of buildings, such as towers, with sizes, materials and blueprints of the parts."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

PartBlueprints = dict[str, str]
"""The blueprint of each part of a building: `{"walls": "box brick 0 0 0 6 4 3"}`.

Where two parts overlap, the later part replaces the blocks of the earlier part.
"""
Sizes = Mapping[str, int]
Materials = Mapping[str, str]
MATERIALS = ("stone", "brick", "planks", "marble", "slate", "granite", "copper", "tile")


@dataclass(frozen=True)
class BuildingFamily:
    """A kind of building, such as `tower`.

    `sizes` has the smallest and the largest value of each size, such as `{"side": (3, 5)}`.
    `materials` names the parts with a material that can be chosen, such as `("walls", "roof")`. The
    function `parts` makes the blueprints of all parts from chosen sizes and materials.
    """

    sizes: Mapping[str, tuple[int, int]]
    materials: tuple[str, ...]
    parts: Callable[[Sizes, Materials], PartBlueprints]


def _room(size: Sizes, of: Materials) -> PartBlueprints:
    x, y, z = size["length"] - 1, size["width"] - 1, size["height"] - 1
    return {
        "walls": f"hollow_box {of['walls']} 0 0 0 {x} {y} {z}",
        "floor": f"box {of['floor']} 0 0 0 {x} {y} 0",
        "roof": f"box {of['roof']} 0 0 {z} {x} {y} {z}",
        "door": "box door 2 0 1 2 0 2",
        "window": f"box glass {x} 1 2 {x} {y - 1} 2",
    }


def _tower(size: Sizes, of: Materials) -> PartBlueprints:
    side, z, top = size["side"], size["height"], size["height"] + size["mast"]
    return {
        "walls": f"hollow_box {of['walls']} 1 1 0 {side} {side} {z - 1}",
        "roof": f"box {of['roof']} 0 0 {z} {side + 1} {side + 1} {z}",
        "mast": f"line iron 2 2 {z + 1} 2 2 {top}",
    }


def _stairs(size: Sizes, of: Materials) -> PartBlueprints:
    steps, y = size["steps"], size["width"] - 1
    end, z = steps + size["landing"] - 1, steps - 1
    return {
        "steps": f"stairs {of['steps']} 0 0 0 {z} {y} {z}",
        "base": f"box {of['base']} 0 0 0 {z} {y} 0",
        "landing": f"box {of['landing']} {steps} 0 {z} {end} {y} {z}",
    }


def _bridge(size: Sizes, of: Materials) -> PartBlueprints:
    x, y, z = size["length"] - 1, size["width"] - 1, size["height"]
    piers = [f"box {of['piers']} {end} 0 0 {end} {y} {z - 1}" for end in (0, x)]
    rails = [f"line fence 0 {side} {z + 1} {x} {side} {z + 1}" for side in (0, y)]
    return {
        "piers": "\n".join(piers),
        "deck": f"box {of['deck']} 0 0 {z} {x} {y} {z}",
        "rails": "\n".join(rails),
    }


def _pyramid(size: Sizes, of: Materials) -> PartBlueprints:
    top = size["levels"] - 1
    levels = [f"box {of['body']} {z} {z} {z} {2 * top - z} {2 * top - z} {z}" for z in range(top)]
    tip = f"line {of['tip']} {top} {top} {top} {top} {top} {top + size['tip'] - 1}"
    return {"body": "\n".join(levels), "tip": tip}


FAMILIES: Mapping[str, BuildingFamily] = {
    "room": BuildingFamily(
        {"length": (5, 9), "width": (4, 8), "height": (4, 6)}, ("walls", "floor", "roof"), _room
    ),
    "tower": BuildingFamily(
        {"side": (3, 5), "height": (4, 8), "mast": (2, 7)}, ("walls", "roof"), _tower
    ),
    "stairs": BuildingFamily(
        {"steps": (4, 8), "width": (2, 4), "landing": (2, 4)},
        ("steps", "base", "landing"),
        _stairs,
    ),
    "bridge": BuildingFamily(
        {"length": (6, 9), "width": (3, 5), "height": (2, 5)}, ("piers", "deck"), _bridge
    ),
    "pyramid": BuildingFamily({"levels": (3, 5), "tip": (1, 6)}, ("body", "tip"), _pyramid),
}


def order(family: str, sizes: Sizes, materials: Materials) -> str:
    """Return the text that orders a building:
    "Build the pyramid: levels 4, tip 2; body brick, tip tile.".
    """
    numbers = ", ".join(f"{name} {size}" for name, size in sizes.items())
    blocks = ", ".join(f"{name} {block}" for name, block in materials.items())
    return f"Build the {family}: {numbers}; {blocks}."


def parts_of(text: str) -> PartBlueprints:
    """Return the blueprint of each part of the building that is ordered in a text.

    A blueprint has lines such as "box brick 0 0 0 6 4 3". `text` must contain an order, such as
    "Build the pyramid: levels 4, tip 2; body brick, tip tile.". Otherwise ValueError is raised.
    Raises KeyError if the order lacks a size or a material of the building.
    """
    match = re.search(r"Build the (\w+): ([\w ,]+); ([\w ,]+)\.", text)
    if match is None or match[1] not in FAMILIES:
        raise ValueError(f"Got {text!r}, expected an order like 'Build the FAMILY: SIZES; BLOCKS.'")
    family = FAMILIES[match[1]]
    sizes, materials = (dict(re.findall(r"(\w+) (\w+)", match[n])) for n in (2, 3))
    return family.parts({name: int(size) for name, size in sizes.items()}, materials)
