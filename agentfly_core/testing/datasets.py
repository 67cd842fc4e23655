"""Make the problems of a dataset, with the same checks as in a run."""

from agentfly_core.config.parts import Data
from agentfly_core.records import dataset
from agentfly_core.records.trajectory import Problem
from agentfly_core.system.formats.json_value import JSON


def problems_of(
    use: str, *, seed: int = 0, train: int = 8, validation: int = 2, test: int = 4, **settings: JSON
) -> dict[str, list[Problem]]:
    """Make the problems of each split of a dataset. `use` is the import path of the dataset:

        problems_of("my_quiz:capitals", train=2, validation=0, test=2)["train"][0].prompt

    `settings` are further settings of the dataset. Raises ValueError for problems that a run would
    refuse.
    """
    sizes = {"train": train, "validation": validation, "test": test}
    data = Data.model_validate({"use": use, **sizes, **settings})
    return dataset.problems_of(data, dataset.build(data, seed))
