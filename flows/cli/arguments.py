"""Arguments that several commands share."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import ArgumentCollection, Group, Parameter

from flows.cli import completion

if TYPE_CHECKING:
    from agentfly_core.experiment.experiment import Experiment

typed: ContextVar[str] = ContextVar("typed", default="agentfly")
"""The command as typed: `agentfly train quickstart seed=1`."""

WHERE = Group("Where", sort_key=8)
OUTPUT = Group("Output", sort_key=9)
ARGUMENTS = Group("Arguments", sort_key=-1)
ExperimentArgument = Annotated[
    str,
    Parameter(
        name="EXPERIMENT",
        completer=completion.experiments,
        help="name of a file in ./conf (quickstart, shop, ...), or a path to your own yaml",
    ),
]
Override = Annotated[
    str,
    Parameter(
        name="KEY=VALUE",
        completer=completion.settings,
        help="settings that differ from the file, such as update.learning_rate=3e-4",
    ),
]
RunArgument = Annotated[
    str,
    Parameter(
        name="RUN",
        completer=completion.runs,
        help="name of a run, see `agentfly list`",
    ),
]
StoreArgument = Annotated[
    str,
    Parameter(
        name="--store",
        group=WHERE,
        help="where runs and artifacts go: a folder (default: .) or s3://bucket/prefix",
    ),
]
AsJson = Annotated[bool, Parameter(name="--json", group=OUTPUT, help="print one JSON document")]


def only_one(options: ArgumentCollection) -> None:
    """Refuse two options of a group; raises ValueError."""
    given = [option.name for option in options.filter_by(value_set=True)]
    if len(given) > 1:
        raise ValueError(f"Give one of {' and '.join(given)}.")


@Parameter(name="*")
@dataclass(frozen=True)
class Where:
    """Where a command works: `Where("gpu", "s3://bucket/prefix")`.

    Args:
        site: where it runs, a file in ./conf/site; AGENTFLY_KEY variables change single settings
    """

    site: Annotated[str, Parameter(group=WHERE, completer=completion.sites)] = "local"
    store: StoreArgument = ""


HERE = Where()


@dataclass(frozen=True)
class NamedExperiment:
    """An experiment with settings, and a place: `NamedExperiment("quickstart", ("seed=1",))`."""

    experiment: str
    overrides: tuple[str, ...] = ()
    where: Where = HERE

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments of a flow on this experiment."""
        from flows import dvc_outputs

        overrides = [*dvc_outputs.overrides(self.experiment), *self.overrides]
        return {"experiment": self.experiment, "overrides": overrides, **asdict(self.where)}

    def load(self) -> Experiment:
        """Load the experiment; raises ValueError if it is invalid."""
        from flows.experiments import load_experiment

        return load_experiment(**self.arguments)

    def load_checked(self) -> Experiment:
        """Load the experiment, and check its model and data files."""
        from agentfly_core.experiment.checks import check_inputs

        experiment = self.load()
        check_inputs(experiment.settings)
        return experiment
