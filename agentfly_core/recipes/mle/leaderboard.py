"""Leaderboards with twelve baselines, which are fitted once when a competition is made."""

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge, RidgeCV
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from sklearn.svm import SVC, SVR
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from agentfly_core.recipes.mle.competitions import Competition

_TREES = {"n_estimators": 60, "random_state": 0}
_STUMP = {"max_depth": 1, "random_state": 0}
_LOGISTIC = LogisticRegression(max_iter=1000)
_RIDGE = RidgeCV(np.logspace(-2, 3, 11))
_CHOSEN = np.logspace(-2, 2, 5)

BASELINES: Mapping[str, tuple[Any, Any]] = {
    "constant": (DummyClassifier(), DummyRegressor()),
    "stump": (DecisionTreeClassifier(**_STUMP), DecisionTreeRegressor(**_STUMP)),
    "tree": (DecisionTreeClassifier(random_state=0), DecisionTreeRegressor(random_state=0)),
    "one neighbour": (KNeighborsClassifier(1), KNeighborsRegressor(1)),
    "ten neighbours": (KNeighborsClassifier(10), KNeighborsRegressor(10)),
    "linear": (_LOGISTIC, Ridge()),
    "chosen linear": (GridSearchCV(_LOGISTIC, {"C": _CHOSEN}, cv=3), _RIDGE),
    "vectors": (SVC(), SVR()),
    "chosen vectors": (
        GridSearchCV(SVC(), {"C": _CHOSEN}, cv=3),
        GridSearchCV(SVR(), {"C": 100 * _CHOSEN}, cv=3),
    ),
    "forest": (RandomForestClassifier(**_TREES), RandomForestRegressor(**_TREES)),
    "extra trees": (ExtraTreesClassifier(**_TREES), ExtraTreesRegressor(**_TREES)),
    "curved": (LogisticRegression(C=0.1, max_iter=1000), _RIDGE),
}
"""Maps the name of each baseline to a classifier and a regressor. The classifier is used if the
target is a class, and the regressor if the target is a number.
"""


def leaderboard(task: Competition) -> dict[str, float]:
    """Fit all baselines. Return the score of each baseline on the private test rows, by name.

    The task determines whether the classifiers or the regressors in BASELINES are fitted.
    """
    train, test = (pd.read_csv(io.BytesIO(task.files[f"{n}.csv"])) for n in ("train", "test"))
    scores = {}
    for name, (classifier, regressor) in BASELINES.items():
        model = classifier if task.metric.higher_is_better else regressor
        steps = _pipeline(model, "text" in train, curved=name == "curved")
        columns = "text" if "text" in train else list(test.columns[1:])
        steps.fit(train[columns], train["target"])
        given = test[["id"]].assign(target=steps.predict(test[columns]))
        scores[name] = task.scores(given.to_csv(index=False).encode())[1]
    return scores


def _pipeline(model: Any, text: bool, curved: bool) -> Pipeline:
    """Return a pipeline that ends with `model`.

    For texts, the features are the counts of words. With `curved`, the counts of word pairs are
    added. For numbers, the features are the scaled columns. With `curved`, squares of columns and
    products of two columns are added.
    """
    if text:
        return make_pipeline(CountVectorizer(ngram_range=(1, 1 + curved)), model)
    products = [PolynomialFeatures(2)] if curved else []
    return make_pipeline(SimpleImputer(), *products, StandardScaler(), model)
