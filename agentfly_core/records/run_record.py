"""Contents of run.json and summary.json of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NotRequired, TypedDict

from agentfly_core.system.formats.json_value import JSON


class ArtifactRecord(TypedDict):
    """An artifact: `{"uri": "runs/demo/steps/000040/policy", "digest": "9f2c...e1"}`."""

    uri: str
    digest: str


class ParentPolicy(ArtifactRecord):
    """A policy of another run."""

    run: str


class CodeRecord(TypedDict):
    """A run's code: the sha256 of the files of each module, and the state of its repository:
    `{"files": {"my_tools": {"my_tools.py": "9f2c..."}}, "repository": {"commit": "4f0c...",
    "dirty": ""}}`.
    """

    files: Mapping[str, Mapping[str, str]]
    repository: Mapping[str, str]


class AcceptedCode(TypedDict):
    """An accepted change of code: changed files, the last step before it, and digests by stage."""

    step: int
    time_ms: int
    files: list[str]
    before: Mapping[str, Mapping[str, str]]
    after: Mapping[str, Mapping[str, str]]


class SiteRecord(TypedDict):
    """Settings of the site that are read again. The record contains all its other settings too."""

    name: str
    mlflow_tracking_uri: str
    price_per_hour: float | None
    endpoints: Mapping[str, JSON]


class RunRecord(TypedDict):
    """run.json: identity and settings of a run.

    `settings` is the experiment and `site` where it last continued, both as their
    models write them; `frozen`, in a run that has any, are the digests of its frozen speakers, by
    role; `code` is its current code, `accepted_code` are the changes that were accepted;
    `model_digest` is the digest of a model folder's files; `planned_steps` is the planned number of
    steps in a run that ended early because its time was over.
    """

    uid: str
    name: str
    experiment: str
    origin: dict[str, str]
    seed: int
    revision: Mapping[str, str | None]
    versions: dict[str, str]
    stages: dict[str, int]
    threads: int
    ranks: int
    cpus: int | None
    created_ms: int
    parent: ParentPolicy | None
    reference: ArtifactRecord | None
    frozen: NotRequired[dict[str, str]]
    settings: Mapping[str, JSON]
    settings_digest: str
    site: SiteRecord
    model_digest: NotRequired[str]
    dataset_uri: NotRequired[str]
    dataset_digest: NotRequired[str]
    dataset_version: NotRequired[str]
    sandbox: NotRequired[str]
    planned_steps: NotRequired[int]
    code: CodeRecord
    accepted_code: NotRequired[list[AcceptedCode]]


class Details(TypedDict, total=False):
    """Details of the evaluations `before` and `after`, beyond success on the test split."""

    evaluations: dict[str, dict[str, JSON]]


class Summary(Details):
    """summary.json: how a run ended. An interval is `[low, high]`. `seconds` are by stage, and 0
    for a stage that another run executed.
    """

    run: str
    experiment: str
    steps: int
    success_before: float
    success_after: float
    interval_before: list[float]
    interval_after: list[float]
    seconds: dict[str, float]
    policy_digest: str
    prefect_flow_run_ids: list[str]
