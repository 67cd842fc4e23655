"""What play.json of played episodes says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypedDict

from agentfly_core.records.run_record import ArtifactRecord
from agentfly_core.system.formats.json_value import JSON

ModeName = Literal["experiment", "live", "chat"]
"""By the experiment's rules, many or one at a time; or in talk with a person, who is its user."""


class PlayRecord(TypedDict):
    """play.json: which policy played what, and the command that asked for it.

    `policy` is the reference as it was asked for ("run:demo@7", "oracle", "my_file:policy").
    `sampled_from` is the policy whose tokens were sampled; where a function gave the replies it is
    None and `script` is that function's import path. `settings` is the identity of the experiment;
    where the mode, which the file calls `way`, is "chat" its agent and limits did not count, and no
    problem was attempted.
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
