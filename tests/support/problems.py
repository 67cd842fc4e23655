"""Problems, and a dataset of them."""

from agentfly_core.records.trajectory import Problem


def problems(prefix, count):
    return [
        Problem(f"{prefix}-{i:03d}", f"What is {prefix} {i}?", {"answer": str(i)})
        for i in range(count)
    ]


def clean(seed, train, validation, test):
    return {
        "train": problems("a", train),
        "validation": problems("b", validation),
        "test": problems("c", test),
    }
