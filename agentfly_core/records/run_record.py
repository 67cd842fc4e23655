"""What run.json and summary.json of a run say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NotRequired, TypedDict

from agentfly_core.formats.json_value import JSON


class Pointer(TypedDict):
    """An artifact: `{"uri": "runs/demo/steps/000040/policy", "digest": "9f2c...e1"}`."""

    uri: str
    digest: str


class ParentPolicy(Pointer):
    """A policy of another run."""

    run: str


class CodeRecord(Pointer):
    """The sources that a run works under, and what they are of: `{"uri": "artifacts/code/9f2c...",
    ..., "repository": {"commit": "4f0c...", "dirty": ""}}`.
    """

    repository: NotRequired[Mapping[str, str]]


class EarlierCode(TypedDict):
    """Code that a run worked under up to a step, with its digests by stage; `differs` tells what
    was accepted then.
    """

    until: int
    code: Mapping[str, Mapping[str, str]]
    sources: CodeRecord
    differs: list[str]
    time_ms: int


class SiteRecord(TypedDict):
    """What is read of the site; all the rest of it stands there too."""

    name: str
    mlflow_tracking_uri: str
    price_per_hour: NotRequired[float | None]
    endpoints: NotRequired[Mapping[str, JSON]]


class RunRecord(TypedDict):
    """run.json: what the run is and was started with; earlier releases left out `NotRequired` keys.

    `science` is the identity of the experiment and `site` where it last continued, both as their
    models write them; `frozen`, in a run that has any, are the digests of its frozen speakers, by
    role; `code` is what it works under, and `earlier_code` what it did before other code was
    accepted; `model_digest` is that of the files of a model folder; `planned_steps` were asked for
    in a run that ended before, as its time was over.
    """

    uid: str
    name: NotRequired[str]
    experiment: str
    origin: dict[str, str]
    seed: NotRequired[int]
    revision: Mapping[str, str | None]
    versions: NotRequired[dict[str, str]]
    stages: dict[str, int]
    threads: NotRequired[int]
    ranks: NotRequired[int]
    cpus: NotRequired[int | None]
    created_ms: int
    parent: ParentPolicy | None
    reference: NotRequired[Pointer | None]
    frozen: NotRequired[dict[str, str]]
    science: Mapping[str, JSON]
    science_digest: NotRequired[str]
    site: SiteRecord
    model_digest: NotRequired[str]
    dataset_digest: NotRequired[str]
    dataset_version: NotRequired[str]
    sandbox: NotRequired[str]
    planned_steps: NotRequired[int]
    code: NotRequired[CodeRecord]
    earlier_code: NotRequired[list[EarlierCode]]


class Details(TypedDict, total=False):
    """What a summary says of the evaluations `before` and `after` where more was asked for than the
    success on the test split.
    """

    evaluations: dict[str, dict[str, JSON]]


class Summary(Details):
    """summary.json: how a run ended; an interval is `[low, high]`, `seconds` are by stage, 0 for
    one that another run had made.
    """

    run: str
    experiment: str
    steps: int
    success_before: float
    success_after: float
    interval_before: list[float]
    interval_after: list[float]
    seconds: dict[str, float]
    policy_digest: NotRequired[str]
    mlflow_run_id: NotRequired[str | None]
    prefect_flow_run_ids: NotRequired[list[str]]
