"""Parameters of flows: types with the schema that Prefect's UI and server use."""

import datetime
from typing import Annotated, Any

from annotated_types import Ge, Gt
from pydantic import Field, JsonValue, WithJsonSchema

from agentfly_core.config import loading
from agentfly_core.config.experiment import Settings


def _field(description: str, **schema: JsonValue) -> Any:
    return Field(json_schema_extra={"description": description, **schema})


EXAMPLES: list[JsonValue] = ["steps=30", "update.learning_rate=1e-4", "rollout.problems=8"]
OVERRIDE: dict[str, JsonValue] = {
    "type": "string",
    "pattern": rf"^({'|'.join(Settings.model_fields)})(\.[^=]+)?=",
    "examples": EXAMPLES,
}
SITES: list[JsonValue] = [*sorted({"local", *loading.names(loading.CONF / "site")})]
RUN = r"^([A-Za-z0-9][A-Za-z0-9._-]*)?$"

ExperimentName = Annotated[
    str, _field("Name of an experiment in conf/", enum=list(loading.names()))
]
FlowOfExperiment = Annotated[str, _field("Name of a flow in the experiment's `flows`")]
RunName = Annotated[
    str, _field("Name of the run; empty: a name that is derived from the settings", pattern=RUN)
]
Another = Annotated[
    bool, _field("Whether to start another run, NAME-2, NAME-3, ..., if the run already exists")
]
Overrides = Annotated[
    list[Annotated[str, WithJsonSchema(OVERRIDE)]],
    _field(
        "Settings that differ from the experiment's file, each as key=value", examples=[EXAMPLES]
    ),
]
SiteName = Annotated[str, _field("The machine: name of a file in conf/site/", enum=SITES)]
StoreUri = Annotated[
    str,
    _field("Store of runs and artifacts: a folder or s3://bucket/prefix; empty: the site's store"),
]
NightDate = Annotated[
    datetime.date | None,
    _field("Date of the night; empty: date of the start in the schedule's time zone"),
]
Hours = Annotated[
    float | None,
    _field("Time limit in hours; the step that exceeds it is the last one; empty: no limit"),
    Gt(0),
]
Attempts = Annotated[
    int, _field("Number of attempts to finish a night before it is given up"), Ge(1)
]
Approval = Annotated[
    bool, _field("Whether a person must approve a better policy before it becomes the champion")
]
RunOfNight = Annotated[str, _field("The night to approve", pattern=RUN)]
Days = Annotated[
    float, _field("Days to wait for an answer; afterwards, the policy is not approved"), Gt(0)
]
