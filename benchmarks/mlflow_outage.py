"""Cost of an MLflow server that is down for a whole run, and whether all points arrive later.

    AGENTFLY_SAMPLER=transformers python -m benchmarks.mlflow_outage --overrides steps=3

The experiment is trained once with each store: a database without a server, an address that refuses
connections, and a server that accepts connections and never answers. The runs share no output.
Training never waits for MLflow, so the cost of an outage is the wait at the end of a run, as a
share of the run's time. Each run is then synced with a database. The benchmark exits with an error
if a wait is above 5 %, or if a point is missing or doubled.
"""

import math
import os
import socket
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mlflow import MlflowClient

from agentfly_core.pipeline.loop.stages import Stages
from agentfly_core.pipeline.loop.training import Training
from agentfly_core.runs.run import links_of, opened
from agentfly_core.runs.run_request import RunRequest
from benchmarks import harness
from flows.experiments import load_experiment
from flows.reporting import reported, reporting

Way = Literal["database", "refuses", "hangs"]
WAYS: tuple[Way, ...] = ("database", "refuses", "hangs")
LIMIT = 0.05


@dataclass(frozen=True)
class Result:
    """The measurements of a run.

    `trained` are the seconds of training, and `waited` the seconds of the wait for MLflow at the
    end. `points` counts how often MLflow later has each point of a metric.
    """

    trained: float
    waited: float
    points: Counter[tuple[str, int]]


@contextmanager
def address(way: Way, folder: Path) -> Iterator[str]:
    """Yield the tracking URI of an MLflow store: a database, or a server that does not work."""
    if way == "database":
        yield f"sqlite:///{folder}/first.db"
        return
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        if way == "hangs":
            server.listen(128)
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def trained(experiment: str, overrides: list[str], way: Way, folder: Path) -> Result:
    """Train in an empty folder with one of the stores. Then send the run to a new database."""
    with address(way, folder) as uri:
        os.environ["MLFLOW_TRACKING_URI"] = uri
        loaded = load_experiment(experiment, overrides, "local", str(folder))
        with opened(loaded, "outage") as run:
            began = time.monotonic()
            with reporting(run) as report:
                Training(run, folder, Stages(), math.inf, report).complete()
                ended = time.monotonic()
            waited = time.monotonic() - ended
    os.environ["MLFLOW_TRACKING_URI"] = later = f"sqlite:///{folder}/later.db"
    reported(RunRequest(loaded, "outage"))
    run_id = links_of(loaded.store, "outage")["mlflow_run_ids"][-1]
    client = MlflowClient(later)
    points = Counter(
        (name, point.step)
        for name in client.get_run(run_id).data.metrics
        for point in client.get_metric_history(run_id, name)
    )
    return Result(ended - began, waited, points)


def main() -> None:
    """Train with each store, print the table, and check that waits and points are as expected."""
    parser = harness.parser(__doc__, experiment="quickstart")
    parser.add_argument("--overrides", nargs="*", default=[], metavar="key=value")
    options, results = parser.parse_args(), dict[Way, Result]()
    for way in WAYS:
        with tempfile.TemporaryDirectory(prefix="outage-") as folder:
            results[way] = trained(options.experiment, options.overrides, way, Path(folder))
    shares = {way: result.waited / result.trained for way, result in results.items()}
    rows = [
        [
            way,
            f"{each.trained:.1f}",
            f"{each.waited:.2f}",
            f"{shares[way]:.1%}",
            str(len(each.points)),
        ]
        for way, each in results.items()
    ]
    harness.show(["MLflow", "training s", "wait s", "share", "points later"], rows)
    expected = results["database"].points
    whole = all(each.points == expected for each in results.values())
    if not whole or max(expected.values()) > 1 or max(shares["refuses"], shares["hangs"]) > LIMIT:
        raise SystemExit("A wait is above 5 %, or a point is missing or doubled.")


if __name__ == "__main__":
    main()
