"""Contents of run.json and summary.json of a run, and of play.json of played episodes."""

from collections.abc import Mapping
from typing import Literal, NotRequired, TypedDict

from agentfly_core.system.formats.file_shapes import ArtifactRecord, CodeRecord, ParentPolicy
from agentfly_core.system.formats.json_value import JSON


class AcceptedCode(TypedDict):
    """An accepted change of code: the last step before it, and the earlier digests by stage."""

    step: int
    time_ms: int
    modules: list[str]
    before: Mapping[str, Mapping[str, str]]


class SiteRecord(TypedDict):
    """Settings of the site that are read again. The record contains all its other settings too."""

    name: str
    mlflow_tracking_uri: str
    price_per_hour: float | None
    endpoints: Mapping[str, JSON]


class RunRecord(TypedDict):
    """run.json: identity and settings of a run.

    `settings` is the experiment, `site` the newest site. `frozen` has the digests of frozen
    speakers by role. `accepted_code` lists accepted changes of `code`. `model_digest` covers the
    files of a model folder. `planned_steps` is set if the run ended early for lack of time.
    """

    uid: str
    name: str
    experiment: str
    origin: dict[str, str]
    revision: Mapping[str, str | None]
    versions: dict[str, str]
    stages: dict[str, int]
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
    """Held-out success before and after, which an experiment without rewards lacks; details of
    these evaluations beyond the test split; `losses` of the rounds of a run that is a warm start
    alone. An interval is `[low, high]`.
    """

    success_before: float
    success_after: float
    interval_before: list[float]
    interval_after: list[float]
    evaluations: dict[str, dict[str, JSON]]
    losses: list[dict[str, float]]


class Summary(Details):
    """summary.json: the result of a run. `seconds` are by stage, 0 for stages of another run."""

    run: str
    experiment: str
    steps: int
    seconds: dict[str, float]
    policy_digest: str
    prefect_flow_run_ids: list[str]


ModeName = Literal["experiment", "live", "chat"]
"""By the experiment's rules, many or one at a time; or a conversation with a person as the user."""


class PlayRecord(TypedDict):
    """play.json: the policy and settings of played episodes, and their command.

    `policy` is the given reference ("run:demo@7", "oracle", "my_file:policy"), `sampled_from` the
    policy that sampled tokens, `script` the import path of a function with replies. `way` is the
    mode: in a "chat" the experiment's agent and limits do not count.
    """

    experiment: str
    policy: str
    sampled_from: ArtifactRecord | None
    script: str | None
    way: ModeName
    split: str
    seed: int
    settings: Mapping[str, JSON]
    settings_digest: str
    time_ms: int
    command: str
