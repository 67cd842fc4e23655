"""The command that lists the runs of a store."""

from typing import Annotated

from cyclopts import Parameter

from agentfly_core.runs import listing
from flows.cli.arguments import AsJson, StoreArg
from flows.local.terminal import output
from flows.store import store_at


def list_runs(
    *,
    sort: listing.Sorting = "name",
    filters: Annotated[tuple[str, ...], Parameter(name="--filter")] = (),
    store_uri: StoreArg = "",
    as_json: AsJson = False,
) -> None:
    """List runs, each with the command that continues it.

    Args:
        sort: the order of the runs: name, time (the newest run first), success (the best run
            first) or step (the run with the most steps first)
        filters: show only runs that meet a condition, such as experiment=NAME, state=stopped,
            tag=WORD or update.learning_rate=3e-4; any other text must occur in the run's name,
            experiment, state, tags or changed settings; may be repeated, and a run must meet
            all filters
    """
    store = store_at(store_uri)
    everything = listing.listed(store)
    runs = listing.ordered(listing.only(everything, filters), sort)
    if everything and not runs and not as_json:
        print(f"No run matches {' and '.join(filters)} (runs in the store: {len(everything)}).")
    else:
        output(lambda: listing.as_json(runs), lambda: listing.view(runs, store), as_json)
