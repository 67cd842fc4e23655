"""The DVC stage that writes the corpus: `python -m agentfly_core.recipes.systems_together.corpus
FILE --seed 0`.
"""

import argparse
import json
import random
from pathlib import Path

SIZES = {"train": 480, "val": 48, "test": 48}
"""The number of firms (made-up companies with a two-digit code) in each split."""
CODES = ("41", "52", "63", "74")
CITIES = range(10, 18)


def pages(seed: int) -> list[dict[str, str]]:
    """Make two pages for each firm: the firm's own page, and a directory page with the firm's code:

        {"id": "0017", "title": "firm 3072", "text": "In city 12, code 52.", "split": "train"}
        {"id": "1143", "title": "directory 9023", "text": "Lists firm 3072 with code 52.", ...}

    When a model must fill in the code on the firm's own page, a search can find the directory page.

    The order of the pages is random. In the first four of CITIES, all firms of a city have the same
    code. So a model can memorise the code of such a city. In the other cities, each firm has a
    random code.
    """
    draw, made = random.Random(seed), list[dict[str, str]]()
    shared = dict(zip(CITIES, draw.sample(CODES, len(CODES)), strict=False))
    firms, directories = (
        draw.sample(range(least, 10 * least), sum(SIZES.values())) for least in (100, 1000)
    )
    for split, size in SIZES.items():
        for place in range(size):
            firm, directory, city = firms.pop(), directories.pop(), CITIES[place % len(CITIES)]
            code = shared.get(city) or draw.choice(CODES)
            texts = {
                f"firm {firm}": f"In city {city}, code {code}.",
                f"directory {directory}": f"Lists firm {firm} with code {code}.",
            }
            made += [{"title": one, "text": text, "split": split} for one, text in texts.items()]
    draw.shuffle(made)
    return [{"id": f"{number:04}", **page} for number, page in enumerate(made)]


def main() -> None:
    """Write the pages of the corpus to a JSON-lines file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, help="the JSON-lines file to write")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    given.file.write_text("".join(f"{json.dumps(page)}\n" for page in pages(given.seed)))


if __name__ == "__main__":
    main()
