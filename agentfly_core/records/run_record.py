"""The contents of three JSON files: run.json and summary.json of a run, and play.json of episodes
that were played without training.
"""

from collections.abc import Mapping
from typing import Any, Literal, NotRequired, TypedDict

from agentfly_core.system.formats.file_shapes import ArtifactRecord, CodeRecord, ParentPolicy
from agentfly_core.system.formats.json_value import JSON


class AcceptedCode(TypedDict):
    """A change of code that the user accepted during a run.

    - `step`: the last step before the change
    - `modules`: the changed modules
    - `before`: for each stage, the digests of the modules before the change
    """

    step: int
    time_ms: int
    modules: list[str]
    before: Mapping[str, Mapping[str, str]]


class SiteRecord(TypedDict):
    """The settings of the site (the machine on which a run runs).

    The record contains all settings of the site. This class lists only the settings that later
    commands read.
    """

    name: str
    mlflow_tracking_uri: str
    price_per_hour: float | None
    endpoints: Mapping[str, JSON]


class RunRecord(TypedDict):
    """The contents of run.json: identity and settings of a run.

    - `settings`: the settings of the experiment
    - `site`: the settings of the site (machine) that the run used last
    - `frozen`: maps each untrained role (kind of speaker) to the digest of its policy or model API,
      or to SELF for the run's own policy
    - `code`: the digests of the source files
    - `accepted_code`: the changes of `code` that the user accepted
    - `model_digest`: the digest of the model's files, if the model is a local folder
    - `planned_steps`: the planned number of steps, if the run ended early at its time limit
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
    settings: Mapping[str, Any]
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
    """Results of a finished run, as a part of summary.json.

    Only experiments with rewards have the success fields. `evaluations` has the evaluations before
    and after training as JSON, under the keys `before` and `after`. `losses` has the
    losses of each round of the warm start (supervised fine-tuning). The summary of a run with
    training steps does not contain `losses`. An interval is `[low, high]`.
    """

    success_before: float
    success_after: float
    interval_before: list[float]
    interval_after: list[float]
    evaluations: dict[str, dict[str, JSON]]
    losses: list[dict[str, float]]


class Summary(Details):
    """The contents of summary.json: the result of a run.

    `seconds` has the duration of each stage. The duration is 0 if another run has already computed
    the stage.
    """

    run: str
    experiment: str
    steps: int
    seconds: dict[str, float]
    policy_digest: str
    prefect_flow_run_ids: list[str]


ModeName = Literal["experiment", "live", "chat"]
"""How episodes are played. `experiment` and `live` follow the experiment's rules: `experiment`
plays many episodes in parallel, and `live` plays one episode at a time. `chat` is a conversation
with a person as the user.
"""


class PlayRecord(TypedDict):
    """The contents of play.json, which describes played or imported episodes.

    Played episodes are episodes that a user runs outside of training.

    - `policy`: the reference that the user gave, such as "run:demo@7", "oracle" or "my_file:policy"
    - `sampled_from`: the policy that sampled the tokens
    - `script`: the import path of a function that replied instead of a policy
    - `way`: the mode of the episodes, see ModeName. The mode "chat" ignores the experiment's agent
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
