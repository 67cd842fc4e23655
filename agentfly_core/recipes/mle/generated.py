"""Make competitions from data sets of scikit-learn, and from four kinds of random tables."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn import datasets

from agentfly_core.recipes.mle.competitions import SAMPLE, Competition, Metric

TRAIN, TEST = 160, 600
"""The default number of a table's training rows, and the largest number of its test rows."""
COLUMNS = 8
WORDS = (
    *("amber", "basalt", "cedar", "delta", "ember", "fjord", "garnet", "harbour", "indigo"),
    *("juniper", "kelp", "lagoon", "meadow", "nectar", "onyx", "pebble", "quartz", "ridge"),
    *("saffron", "thistle", "umber", "valley", "willow", "zephyr"),
)
Draw = np.random.Generator


class Table(NamedTuple):
    """The features and the target of all rows.

    A target with integers is for classification. A target with other numbers is for regression.
    """

    features: pd.DataFrame
    target: "pd.Series[Any]"


def _accuracy(answers: pd.DataFrame, given: pd.DataFrame) -> float:
    return float((answers["target"].to_numpy() == given["target"].to_numpy()).mean())


def _rmse(answers: pd.DataFrame, given: pd.DataFrame) -> float:
    errors = answers["target"].to_numpy() - given["target"].to_numpy()
    return float(np.sqrt(np.mean(errors**2)))


ACCURACY, RMSE = Metric("accuracy", True, _accuracy), Metric("rmse", False, _rmse)


def _numbers(draw: Draw, rows: int) -> pd.DataFrame:
    """Draw columns of normally distributed numbers, each with a different scale."""
    scales = 10.0 ** draw.integers(-1, 3, COLUMNS)
    values = draw.normal(size=(rows, COLUMNS)) * scales
    return pd.DataFrame(values.round(4), columns=[f"x{n}" for n in range(COLUMNS)])


def _linear(draw: Draw, rows: int) -> Table:
    features = _numbers(draw, rows)
    weights = draw.normal(size=COLUMNS) / features.std().to_numpy()
    return _measured(draw, features, features.to_numpy() @ weights, 0.5)


def _interaction(draw: Draw, rows: int) -> Table:
    """Draw a table with two classes. The class is the sign of x * y + 0.7 * z + noise.

    x, y and z are three random columns, divided by their standard deviations.
    """
    features = _numbers(draw, rows)
    scaled = (features / features.std()).to_numpy()
    one, two, three = draw.permutation(COLUMNS)[:3]
    values = scaled[:, one] * scaled[:, two] + 0.7 * scaled[:, three]
    values += draw.normal(scale=0.2, size=rows)
    return Table(features, pd.Series((values > 0).astype(int)))


def _text(draw: Draw, rows: int) -> Table:
    """Draw a table of texts with two classes.

    Each word has a random weight. The class is 1 if the sum of a text's weights, with noise, is
    above the median of all texts.
    """
    weights = dict(zip(WORDS, draw.normal(size=len(WORDS)), strict=True))
    texts = [list(draw.choice(WORDS, size=draw.integers(6, 14))) for _ in range(rows)]
    values = np.array([sum(weights[word] for word in words) for words in texts])
    values += draw.normal(scale=0.5, size=rows)
    features = pd.DataFrame({"text": [" ".join(words) for words in texts]})
    return Table(features, pd.Series((values > np.median(values)).astype(int)))


def _missing(draw: Draw, rows: int) -> Table:
    """Draw a table with a number as target.

    The target is a nonlinear function of three columns, with noise. A fifth of the values in the
    feature columns is missing.
    """
    features = _numbers(draw, rows)
    scaled = (features / features.std()).to_numpy()
    one, two, three = draw.permutation(COLUMNS)[:3]
    values = scaled[:, one] ** 2 + np.abs(scaled[:, two]) + 0.5 * scaled[:, three]
    return _measured(draw, features.mask(draw.random(features.shape) < 0.2), values, 0.2)


def _measured(draw: Draw, features: pd.DataFrame, values: Any, noise: float) -> Table:
    target = values + draw.normal(scale=noise, size=len(values))
    return Table(features, pd.Series(target.round(4)))


def _real(load: Callable[..., Any], draw: Draw, rows: int) -> Table:
    data = load(as_frame=True)
    chosen = draw.permutation(len(data.data))[:rows]
    features = data.data.iloc[chosen].reset_index(drop=True)
    # names without spaces, as in the synthetic families
    features.columns = [f"x{n}" for n in range(features.shape[1])]
    return Table(features, data.target.iloc[chosen].reset_index(drop=True))


KINDS: Mapping[str, Callable[[Draw, int], Table]] = {
    "linear": _linear,
    "interaction": _interaction,
    "text": _text,
    "missing": _missing,
    "breast-cancer": functools.partial(_real, datasets.load_breast_cancer),
    "digits": functools.partial(_real, datasets.load_digits),
    "wine": functools.partial(_real, datasets.load_wine),
    "diabetes": functools.partial(_real, datasets.load_diabetes),
}
TRAIN_ROWS = {"wine": 80}


@functools.lru_cache(maxsize=256)
def competition(kind: str, seed: int) -> Competition:
    """Make the competition of a kind and a seed. The same arguments give the same competition.

    Half of the test rows are public. If the target has classes, the sample submission predicts the
    most frequent class of the training rows for all rows. Otherwise, it predicts the mean of the
    training rows.
    """
    draw = np.random.default_rng([seed, *kind.encode()])
    features, target = KINDS[kind](draw, TRAIN + TEST)
    # ids are random, because their order must not show which rows are test rows
    frame = features.assign(target=target)
    frame.insert(0, "id", draw.permutation(len(frame)))
    count = TRAIN_ROWS.get(kind, TRAIN)
    train, test = frame[:count], frame[count:].reset_index(drop=True)
    public = frozenset(draw.permutation(test["id"])[: len(test) // 2].tolist())
    metric = ACCURACY if pd.api.types.is_integer_dtype(target) else RMSE
    described = _described(features, metric, len(train))
    answers = test[["id", "target"]]
    return Competition(f"{kind}-{seed}", described, _files(train, test), answers, public, metric)


def _files(train: pd.DataFrame, test: pd.DataFrame) -> dict[str, bytes]:
    target = train["target"]
    classes = pd.api.types.is_integer_dtype(target)
    tables = {
        "train.csv": train,
        "test.csv": test.drop(columns="target"),
        SAMPLE: test[["id"]].assign(
            target=target.mode()[0] if classes else round(target.mean(), 4)
        ),
    }
    return {name: table.to_csv(index=False).encode() for name, table in tables.items()}


def _described(features: pd.DataFrame, metric: Metric, rows: int) -> str:
    kind = "text" if "text" in features else "numbers"
    gaps = ", of which some are missing" if features.isna().to_numpy().any() else ""
    return (
        f"Predict the column target of test.csv from {features.shape[1]} columns of {kind}{gaps}. "
        f"train.csv has {rows} rows. The metric is {metric.name}, {metric.direction} is better."
    )
