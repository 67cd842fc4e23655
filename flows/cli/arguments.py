"""Arguments that several commands share."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Annotated, Any

from cyclopts import Group, Parameter

from flows.cli.completion import complete_files, complete_runs, complete_settings

WHERE = Group("Where", sort_key=8)
OUTPUT = Group("Output", sort_key=9)
ARGUMENTS = Group("Arguments", sort_key=-1)
RUNS = Parameter(completer=complete_runs)
SITES = Parameter(completer=partial(complete_files, folder="conf/site"), group=WHERE)
ExperimentArg = Annotated[
    str,
    Parameter(
        name="EXPERIMENT",
        completer=complete_files,
        help="name of a file in ./conf (quickstart, shop, ...), or a path to your own yaml",
    ),
]
Override = Annotated[
    str,
    Parameter(
        name="KEY=VALUE",
        completer=complete_settings,
        help="settings that differ from the file, such as update.learning_rate=3e-4",
    ),
]
RunArg = Annotated[
    str, Parameter(name="RUN", completer=complete_runs, help="name of a run, see `agentfly list`")
]
StoreArg = Annotated[
    str,
    Parameter(
        name="--store",
        group=WHERE,
        help="store of runs and artifacts: a folder (default: .) or s3://bucket/prefix",
    ),
]
AsJson = Annotated[bool, Parameter(name="--json", group=OUTPUT, help="print one JSON document")]


@Parameter(name="*")
@dataclass(frozen=True)
class Where:
    """The machine and the store of a command: `Where("gpu", "s3://bucket/prefix")`.

    Args:
        site: name of a file in ./conf/site; variables such as AGENTFLY_RANKS override its settings
    """

    site: Annotated[str, SITES] = "local"
    store: StoreArg = ""

    def of_flow(self, experiment: str, overrides: Sequence[str] = ()) -> dict[str, Any]:
        """Return the keyword arguments for a flow function or for `load_experiment`."""
        from flows import dvc_outputs

        overrides = [*dvc_outputs.overrides(experiment), *overrides]
        return {"experiment": experiment, "overrides": overrides, **asdict(self)}


HERE = Where()
