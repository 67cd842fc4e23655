"""Commands that produce one artifact (a dataset, a warm start, an evaluation) or show settings."""

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.types import PositiveInt
from rich.markdown import Markdown

from agentfly_core.config import loading
from agentfly_core.experiment import checks
from agentfly_core.experiment.task import require_rewards
from agentfly_core.pipeline.play import solvable
from agentfly_core.reports.show.dataset import preview
from agentfly_core.reports.show.settings import settings_table
from agentfly_core.runs import versioning
from agentfly_core.system.formats.json_value import flat
from flows import dvc_outputs
from flows.cli.arguments import HERE, OUTPUT, AsJson, ExperimentArg, Override, Where
from flows.experiments import load_checked, load_experiment
from flows.local.display import rates_table
from flows.local.terminal import VisibleConsole, output
from flows.orchestration import orchestrated


def evaluate(
    target: ExperimentArg,
    /,
    *overrides: Override,
    where: Where = HERE,
    policy: str = "",
    as_json: AsJson = False,
) -> None:
    """Measure how many held-out problems a policy solves.

    The result is the share of solved problems, with a 95 % confidence interval.

    Args:
        policy: run:NAME (the last policy of a run), run:NAME@STEP (0: before step 1), base (the
            experiment's model), endpoint:NAME (a chat service of the site), a model's folder or hub
            id, or a policy.json. Default: the last policy of your own run, i.e. of the run that
            `agentfly train` creates for the same experiment and overrides
    """
    arguments = where.of_flow(target, overrides)
    require_rewards(load_checked(arguments).settings.goal)
    with orchestrated("evaluate", as_json):
        from flows.stages import evaluate as flow

        rates = flow(**arguments, policy=policy)
    output(lambda: rates, lambda: Markdown(rates_table(rates)), as_json)


def prepare(
    target: ExperimentArg,
    /,
    *overrides: Override,
    where: Where = HERE,
    sample: PositiveInt = 2,
    as_json: AsJson = False,
) -> None:
    """Build, check and version the dataset; show some problems.

    Args:
        sample: number of problems of each split to show
    """
    arguments = where.of_flow(target, overrides)
    experiment = load_checked(arguments)
    with orchestrated("prepare", as_json):
        from flows.stages import prepare as flow

        data = flow(**arguments)
    shown = preview(experiment.store, data, sample)
    checked = solvable.check(experiment, data)
    document = {**shown.to_json(), "checked": checked}
    lines = [data.uri, data.digest, *checked, *shown.lines()]
    output(lambda: document, lambda: "\n".join(lines), as_json)


def warm_start(target: ExperimentArg, /, *overrides: Override, where: Where = HERE) -> None:
    """Make the policy that training starts from."""
    arguments = where.of_flow(target, overrides)
    settings = load_checked(arguments).settings
    checks.check_trainable(settings.model, settings.update.share_prefixes)
    with orchestrated("warm-start"):
        from flows.stages import warm_start_only as flow

        policy = flow(**arguments)
    print(f"{policy.uri}\n{policy.digest}")


def resolve(
    target: ExperimentArg, /, *overrides: Override, where: Where = HERE, params: Path | None = None
) -> None:
    """Write the complete settings into results/ for DVC.

    Args:
        params: a params.yaml with further settings under `overrides`: [update.learning_rate=3e-4]
    """
    merged = [*(versioning.overrides_in(params) if params else []), *overrides]
    experiment = load_experiment(target, merged, where.site, where.store)
    settings = experiment.settings
    checks.check_inputs(settings)
    values = settings.model_dump(mode="json")
    dvc_outputs.write_config(experiment.name, values, settings.code, merged)


def config(
    target: ExperimentArg,
    /,
    *overrides: Override,
    where: Where = HERE,
    changed: Annotated[bool, Parameter(group=OUTPUT)] = False,
) -> None:
    """Check an experiment; show its settings with their origins.

    The dataset is not built.

    Args:
        changed: only the settings that differ from the defaults
    """
    experiment = load_experiment(**where.of_flow(target, overrides))
    site, source = experiment.site.model_dump(), loading.site_origin(where.site, where.store)
    # a section of the site, such as endpoints, has one origin
    of_site = {f"site.{key}": source[key.partition(".")[0]] for key in flat(site)}
    values = {**experiment.settings.model_dump(mode="json"), "site": site}
    VisibleConsole().print(settings_table(values, {**of_site, **experiment.origin}, changed))
    checks.check_beginning(experiment.settings)
    # these raise an error for a missing run
    _ = experiment.parent, experiment.reference, experiment.frozen
    for line in checks.template_report(experiment.settings.model, experiment.settings.template):
        print(f"template, {line}")
    for remark in checks.remarks(experiment.settings.model, experiment.tasks):
        print(f"agentfly: {remark}", file=sys.stderr)
    print("This can be trained.")
