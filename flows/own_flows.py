"""A Prefect flow that runs a function from the setting `flows` of an experiment."""

from typing import Any

import pandas as pd
from prefect import flow
from prefect.runtime import flow_run

from flows.flow_run import devices, experiment_of_flow
from flows.local.prefect_server import flow_run_page
from flows.local.state_dirs import settle
from flows.parameters import ExperimentName, FlowOfExperiment, Overrides, SiteName, StoreUri
from flows.reporting import report_rows
from flows.run_pages import show_rows


@flow(name="own-flow", flow_run_name="{experiment} {flow}")
def own_flow(
    experiment: ExperimentName,
    flow: FlowOfExperiment,
    overrides: Overrides = [],  # noqa: B006
    site: SiteName = "local",
    store: StoreUri = "",
) -> list[dict[str, Any]]:
    """Run a function from an experiment's `flows`. Show the result rows in Prefect and MLflow,
    and return the rows.

    Raises ValueError for a flow that the experiment does not have.
    """
    loaded = experiment_of_flow(experiment, overrides, site, store)
    if flow not in (flows := loaded.settings.flows):
        listed = ", ".join(flows) or "none"
        raise ValueError(
            f"The experiment {experiment} has no flow {flow!r}. Its flows are: {listed}."
        )
    # functions that need GPUs hold them, such as `evaluate`
    with devices(loaded.site, (), f"the flow {flow} of {experiment}"):
        made = flows[flow].make(experiment=loaded)
    frame: Any = pd.DataFrame(made)
    rows: list[dict[str, Any]] = frame.to_dict("records")
    page = flow_run_page(settle().api, str(flow_run.id))
    settings = loaded.settings.model_dump(mode="json")
    report_rows(loaded.name, settings, loaded.site, flow, page, rows)
    show_rows(flow, experiment, rows)
    return rows
