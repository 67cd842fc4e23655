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
    str, _field("An experiment of the folder conf/", enum=list(loading.names()))
]
FlowOfExperiment = Annotated[str, _field("A flow that the experiment names in `flows`")]
RunName = Annotated[
    str, _field("Empty: a name for these settings; the same settings continue the run", pattern=RUN)
]
Another = Annotated[
    bool, _field("Whether it is another run, with a number of its own, even where that one exists")
]
Overrides = Annotated[
    list[Annotated[str, WithJsonSchema(OVERRIDE)]],
    _field(
        "Settings that differ from the experiment's file, each as key=value", examples=[EXAMPLES]
    ),
]
SiteName = Annotated[str, _field("Where it runs: a file of conf/site/", enum=SITES)]
StoreUri = Annotated[
    str,
    _field("Where runs and artifacts go: a folder or s3://bucket/prefix; empty: the site's own"),
]
NightDate = Annotated[
    datetime.date | None, _field("Which night it is; empty: the date in the schedule's time zone")
]
Hours = Annotated[
    float | None,
    _field("The step during which this many hours are over is the last one; empty: no limit"),
    Gt(0),
]
Attempts = Annotated[
    int, _field("How many times a night is begun or continued before it is given up"), Ge(1)
]
Approval = Annotated[
    bool, _field("Whether a person has to approve a better policy before it becomes the champion")
]
RunOfNight = Annotated[str, _field("The night to approve", pattern=RUN)]
Days = Annotated[float, _field("Without an answer after this many days it is not approved"), Gt(0)]
