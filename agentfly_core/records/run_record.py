"""Contents of run.json and summary.json of a run, and of play.json of played episodes."""

from collections.abc import Mapping
from typing import Literal, NotRequired, TypedDict

from agentfly_core.system.formats.file_shapes import ArtifactRecord, CodeRecord, ParentPolicy
from agentfly_core.system.formats.json_value import JSON


class AcceptedCode(TypedDict):
    """An accepted change of code: the last step before the change, and the old digests by stage."""

    step: int
    time_ms: int
    modules: list[str]
    before: Mapping[str, Mapping[str, str]]


class SiteRecord(TypedDict):
    """All settings of the site; later commands read the keys below."""

    name: str
    mlflow_tracking_uri: str
    price_per_hour: float | None
    endpoints: Mapping[str, JSON]


class RunRecord(TypedDict):
    """run.json: identity and settings of a run.

    - `settings`: the settings of the experiment
    - `site`: the settings of the site that the run used last
    - `frozen`: digests of frozen speakers by role
    - `accepted_code`: accepted changes of `code`
    - `model_digest`: digest of the files in a model folder
    - `planned_steps`: set if the run ended early at its time limit
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
    """Details of a finished run.

    An experiment without rewards has no held-out success. `evaluations` has further figures of the
    evaluations before and after training. `losses` has the losses of each round of a run that is
    only a warm start. An interval is `[low, high]`.
    """

    success_before: float
    success_after: float
    interval_before: list[float]
    interval_after: list[float]
    evaluations: dict[str, dict[str, JSON]]
    losses: list[dict[str, float]]


class Summary(Details):
    """summary.json: the result of a run.

    `seconds` has the duration of each stage, 0 for a stage that another run has computed.
    """

    run: str
    experiment: str
    steps: int
    seconds: dict[str, float]
    policy_digest: str
    prefect_flow_run_ids: list[str]


ModeName = Literal["experiment", "live", "chat"]
"""`experiment` and `live` play with the experiment's rules: `experiment` many episodes at once,
`live` one episode at a time. `chat` is a conversation with a person as the user.
"""


class PlayRecord(TypedDict):
    """play.json: the policy, the settings and the command of played episodes.

    `policy` is the reference that the user gave ("run:demo@7", "oracle", "my_file:policy").
    `sampled_from` is the policy that sampled tokens. `script` is the import path of a function that
    replied instead of a policy. `way` is the mode; the mode "chat" ignores the experiment's agent
    and limits.
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
