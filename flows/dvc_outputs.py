"""Write files for DVC: references to artifacts, metrics, and points of a plot."""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from agentfly_core.experiment import keys
from agentfly_core.experiment.run_policies import final_policy
from agentfly_core.experiment.user_code import COUNTED
from agentfly_core.records.run_record import Summary
from agentfly_core.runs import versioning
from agentfly_core.runs.summary import Evaluation, steps_frame
from agentfly_core.store.artifact import Artifact
from agentfly_core.store.store import Store
from agentfly_core.system.files import write_json, write_text
from agentfly_core.system.formats import strict_yaml
from agentfly_core.system.formats.foreign_names import storable
from agentfly_core.system.formats.json_value import JSON, as_json


def wanted() -> bool:
    """Whether DVC started this process, and expects the files that this module writes."""
    return "DVC_STAGE" in os.environ


def folder(experiment: str) -> Path:
    """Return the folder of an experiment's files for DVC: `results/quickstart`."""
    return Path("results") / experiment


def overrides(experiment: str) -> list[str]:
    """Return the overrides of settings in the file config.yaml of an experiment's DVC folder.

    DVC's stage `resolve` writes this file. The list is empty if the file is missing, or if DVC did
    not start this process.
    """
    config = folder(experiment) / "config.yaml"
    # outside of DVC an earlier configuration must not override a command
    if not wanted() or not config.is_file():
        return []
    return versioning.overrides_in(config)


def write_config(
    experiment: str,
    settings: Mapping[str, JSON],
    own_code: Mapping[str, Mapping[str, str]],
    overrides: Sequence[str],
) -> None:
    """Write the complete settings of an experiment to the file config.yaml of its DVC folder.

    The file also has the versions of all stages, digests of the user's code by stage (`own_code`),
    and the overrides of params.yaml. DVC runs a stage again if the stage depends on an entry of the
    file, and this entry has changed.
    """
    code: JSON = as_json({stage: {} for stage in COUNTED} | {**own_code})
    listed: JSON = [*overrides]
    extra = {"code": code, "stages": dict(keys.VERSIONS), "overrides": listed}
    write_text(folder(experiment) / "config.yaml", strict_yaml.dump({**settings, **extra}))


def write_dataset(experiment: str, store: Store, data: Artifact) -> None:
    """Copy the splits of a dataset to the folder data/generated, which DVC caches.

    Also write a file with the uri and digest of the dataset.
    """
    target = Path("data/generated") / experiment
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for path in store.open(data).glob("*.parquet"):
        shutil.copy(path, target / path.name)
    write(experiment, "dataset", data)


def write(experiment: str, name: str, value: Artifact | Evaluation) -> None:
    """Write the file `name`.json for DVC, if DVC started this process.

    For an artifact, the file has its uri and digest. For an evaluation, it has the held-out success
    of the policy.
    """
    if wanted():
        write_json(folder(experiment) / f"{name}.json", value.to_json())


def write_run(store: Store, steps: range, summary: Summary) -> None:
    """Write the files of a finished run for DVC.

    The files have the uri and digest of the last policy, the summary, and a table of steps for `dvc
    plots`.
    """
    experiment, run = summary["experiment"], summary["run"]
    write(experiment, "policy", final_policy(store, run))
    write_json(folder(experiment) / "summary.json", as_json(summary))
    frame = steps_frame(store, run, steps).rename(
        columns={"rollout/reward": "reward", "rollout/success": "success"}
    )
    text = frame.rename(columns=storable).to_csv(index=False)
    write_text(folder(experiment) / "steps.csv", text)
