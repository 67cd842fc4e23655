"""Leaderboards: twelve baselines, fitted once when a competition is made."""

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
_CHOSEN = np.logspace(-2, 2, 5)
CLASSIFIERS: Mapping[str, Any] = {
    "constant": DummyClassifier(),
    "stump": DecisionTreeClassifier(max_depth=1, random_state=0),
    "tree": DecisionTreeClassifier(random_state=0),
    "one neighbour": KNeighborsClassifier(1),
    "ten neighbours": KNeighborsClassifier(10),
    "linear": LogisticRegression(max_iter=1000),
    "chosen linear": GridSearchCV(LogisticRegression(max_iter=1000), {"C": _CHOSEN}, cv=3),
    "vectors": SVC(),
    "chosen vectors": GridSearchCV(SVC(), {"C": _CHOSEN}, cv=3),
    "forest": RandomForestClassifier(**_TREES),
    "extra trees": ExtraTreesClassifier(**_TREES),
    "curved": LogisticRegression(C=0.1, max_iter=1000),
}
REGRESSORS: Mapping[str, Any] = {
    "constant": DummyRegressor(),
    "stump": DecisionTreeRegressor(max_depth=1, random_state=0),
    "tree": DecisionTreeRegressor(random_state=0),
    "one neighbour": KNeighborsRegressor(1),
    "ten neighbours": KNeighborsRegressor(10),
    "linear": Ridge(),
    "chosen linear": RidgeCV(np.logspace(-2, 3, 11)),
    "vectors": SVR(),
    "chosen vectors": GridSearchCV(SVR(), {"C": 100 * _CHOSEN}, cv=3),
    "forest": RandomForestRegressor(**_TREES),
    "extra trees": ExtraTreesRegressor(**_TREES),
    "curved": RidgeCV(np.logspace(-2, 3, 11)),
}


def leaderboard(task: Competition) -> dict[str, float]:
    """The private score of each baseline, by name."""
    train, test = (pd.read_csv(io.BytesIO(task.files[f"{n}.csv"])) for n in ("train", "test"))
    models = CLASSIFIERS if task.metric.higher_is_better else REGRESSORS
    scores = {}
    for name, model in models.items():
        steps = _pipeline(model, "text" in train, curved=name == "curved")
        columns = "text" if "text" in train else list(test.columns[1:])
        steps.fit(train[columns], train["target"])
        given = test[["id"]].assign(target=steps.predict(test[columns]))
        scores[name] = task.scores(given.to_csv(index=False).encode())[1]
    return scores


def _pipeline(model: Any, text: bool, curved: bool) -> Pipeline:
    """A model on counted words, or on scaled numbers, with their products if `curved`."""
    if text:
        return make_pipeline(CountVectorizer(ngram_range=(1, 1 + curved)), model)
    products = [PolynomialFeatures(2)] if curved else []
    return make_pipeline(SimpleImputer(), *products, StandardScaler(), model)
