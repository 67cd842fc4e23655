"""Questions about a REST service that need two requests, and tasks for the observer alone, i.e. the
role that extracts a value from the service's answer.
"""

import json
import random
import re
from collections.abc import Iterator

from agentfly_core import Problem, generated
from agentfly_core.datasets.splitting import sampled
from agentfly_core.recipes.coop_tools.demonstrations import grounded
from agentfly_core.recipes.coop_tools.world import ASPECTS, ENTITIES, KINDS, OPTIONS, RestWorld


@generated
def rest_questions(seed: int, train: int, validation: int, test: int) -> dict[str, list[Problem]]:
    """Make problems for each split, such as

        Problem(
            "films-7-ratings",
            "In the ratings of the film Amber Mill (region north), what is the value of badokilu?",
            {"answer": "417", "world": 3},
        )

    An agent needs two requests: the first finds the id of the film (here 7), the second finds the
    value. `world` is the seed of the service. Films, people and shops have aspects, such as the
    ratings of film 7. Each aspect of a film, person or shop occurs in at most one problem, and so
    in only one split. Raises ValueError if there are too few aspects for the problems.
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


@generated
def observations(seed: int, train: int, validation: int, test: int) -> dict[str, list[Problem]]:
    """Make a problem from each question of `rest_questions`, such as

        Problem(
            "films-7-ratings",
            "Find the value of badokilu for id 7 (region north).",
            {"answer": "417", "digits": "3", "world": 3, "url": "/films/7/ratings?region=north"},
        )

    Each question of `rest_questions` needs two requests. `url` is the second request of the
    question. The service's answer to this request contains the value. `digits` is the number of
    digits of the value.
    """
    made = rest_questions(seed, train, validation, test)
    return {split: [_observation(question) for question in made[split]] for split in made}


def _observation(question: Problem) -> Problem:
    kind, number, aspect = question.id.split("-")
    parameter, option = re.findall(r"\((\w+) (\w+)\)", question.prompt)[0]
    task = json.loads(grounded(f"{question.prompt}\n- the id -> {number}"))["task"]
    url = f"/{kind}/{number}/{aspect}?{parameter}={option}"
    facts = {**question.facts, "digits": str(len(question.facts["answer"])), "url": url}
    return Problem(question.id, task, facts)
