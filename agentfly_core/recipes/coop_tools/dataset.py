"""Questions that need an id and then a long answer of a REST service."""

import random
from collections.abc import Iterator

from agentfly_core import Problem, generated
from agentfly_core.datasets.splitting import sampled
from agentfly_core.recipes.coop_tools.world import ASPECTS, ENTITIES, KINDS, OPTIONS, RestWorld


@generated
def rest_questions(seed: int, train: int, validation: int, test: int) -> dict[str, list[Problem]]:
    """Problems for each split, such as

        Problem(
            "films-7-ratings",
            "In the ratings of the film Amber Mill (region north), what is the value of badokilu?",
            {"answer": "417", "world": 3},
        )

    `world` is the seed of the service. Splits share no pair of thing and aspect. Raises ValueError
    for too many problems.
    """
    draw, world = random.Random(seed), RestWorld(seed)

    def problems(place: tuple[str, int, str]) -> Iterator[Problem]:
        kind, number, aspect = place
        parameter = world.parameter(kind, aspect)
        option = draw.choice(OPTIONS[parameter])
        key, value = draw.choice([*world.records(kind, number, aspect, option).items()])
        thing = f"{KINDS[kind]} {world.names[kind][number - 1]}"
        text = f"In the {aspect} of the {thing} ({parameter} {option}), what is the value of {key}?"
        yield Problem(f"{kind}-{number}-{aspect}", text, {"answer": str(value), "world": seed})

    sizes = {"train": train, "validation": validation, "test": test}
    aspects = [aspect for pair in ASPECTS for aspect in pair]
    numbers = range(1, ENTITIES + 1)
    places = [(kind, number, aspect) for kind in KINDS for number in numbers for aspect in aspects]
    return sampled(draw, places, problems, sizes)
