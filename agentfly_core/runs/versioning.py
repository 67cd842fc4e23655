"""Version datasets and experiments with DVC. Each experiment has its own DVC pipeline.

If two DVC commands run at the same time, DVC rejects the second command instead of waiting. Updates
of datasets therefore run one at a time: each update holds the lock file agentfly.lock.
"""

import fcntl
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentfly_core.config import loading
from agentfly_core.config.experiment import Settings
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.store.artifact import Pointer
from agentfly_core.system import files
from agentfly_core.system.formats import strict_yaml
from agentfly_core.system.formats.checksummed_json import Damaged, json_of
from agentfly_core.system.formats.foreign_names import dvc_accepts
from agentfly_core.system.formats.text import environment

logger = logging.getLogger(__name__)
BUSY = "is being blocked by"


def dataset_version(name: str, settings: Settings, project: Path) -> str:
    """Update the dataset of an experiment in DVC, and return the dataset's DVC version.

    A version is a text such as "dc97ba12...e1.dir". If the dataset cannot have a version, the
    result is a text with the reason, such as "none: data or seed overridden". Raises ValueError
    with the output of DVC if DVC cannot build the dataset.
    """
    if "DVC_STAGE" in os.environ:
        return "none: DVC started this command, and versions the data itself"
    if not any((folder / ".git").exists() for folder in (project, *project.parents)):
        return "none: DVC needs a git repository (git init)"
    try:
        file = pipeline(name, project)
    except ValueError as error:
        return f"none: {error}"
    # the settings under DVC are the file plus the overrides in params.yaml
    overrides = overrides_in(project / file.parent / "params.yaml")
    own = loading.read(str(project / loading.CONF / f"{name}.yaml"), overrides).settings
    if (own.data, own.seed) != (settings.data, settings.seed):
        return "none: data or seed overridden"
    pointer = project / "results" / name / "dataset.json"
    try:
        # DVC does not watch the files that the dataset is built from
        other = pointer.is_file() and read_pointer(pointer).uri != StageKeys(settings).prepare().uri
    except Damaged as damage:
        logger.warning("%s DVC rebuilds the dataset.", damage)
        other = True
    anew = ["--force"] if other else []
    code, printed = _quietly(["repro", *anew, f"{file}:prepare"], project)
    if BUSY in printed:
        return "none: another DVC command is working on this dataset"
    if code:
        end = "\n".join(printed.strip().splitlines()[-15:])
        raise ValueError(f"DVC could not prepare the data of {name!r}:\n{end}")
    locked: Any = strict_yaml.settings(project / file.with_suffix(".lock"))
    outs: list[Mapping[str, Any]] = locked["stages"]["prepare"]["outs"]
    return next(str(out["md5"]) for out in outs if out["path"] == f"data/generated/{name}")


def reproduce(name: str, project: Path) -> int:
    """Run `dvc repro` for an experiment in the terminal, and return the exit status of DVC.

    The stage `resolve` of the pipeline always runs, because DVC does not track the user's code.
    """
    file = pipeline(name, project)
    resolving = ["repro", "--force", "--single-item", f"{file}:resolve"]
    return _dvc(resolving, project).wait() or _dvc(["repro", str(file)], project).wait()


def pipeline(name: str, project: Path) -> Path:
    """Return the path of an experiment's dvc.yaml, relative to the project.

    If params.yaml names the experiment, the result is dvc.yaml. For any other experiment, the
    result is results/NAME/dvc.yaml, a symbolic link to the project's dvc.yaml. The link is created
    if it is missing. Raises ValueError if the experiment is unknown, if DVC cannot use its name, or
    if the project lacks DVC's files.
    """
    if name not in (names := loading.names(project / loading.CONF)):
        raise ValueError(
            f"Got {name!r}, expected one of the experiments in conf/: {', '.join(names)}."
        )
    if not dvc_accepts(name):
        raise ValueError(
            f"DVC cannot use the experiment name {name!r} in its commands and paths. Rename "
            f"conf/{name}.yaml: use letters, digits, '_', '-' and '.' only."
        )
    params = project / "params.yaml"
    if not all(part.exists() for part in (params, project / "dvc.yaml", project / ".dvc")):
        raise ValueError(
            f"DVC needs params.yaml, dvc.yaml and .dvc/ in {project}. Run the command in a "
            "checkout of the project."
        )
    if strict_yaml.settings(params).get("experiment") == name:
        return Path("dvc.yaml")
    folder = project / "results" / name
    own = folder / "params.yaml"
    before = strict_yaml.settings(own) if own.is_file() else {}
    place = {"experiment": name, "root": "../..", "params": f"results/{name}/params.yaml"}
    values = {**place, "overrides": before.get("overrides", [])}
    files.write_text(own, strict_yaml.dump(values, sort_keys=False))
    if not (folder / "dvc.yaml").is_symlink():
        (folder / "dvc.yaml").symlink_to("../../dvc.yaml")
    return Path("results", name, "dvc.yaml")


def read_pointer(path: Path) -> Pointer:
    """Read the pointer to an artifact from a file in results/. DVC tracks this file instead of the
    artifact.

    Raises FileNotFoundError if the file is missing, and Damaged if it does not contain a pointer.
    """
    if (content := files.read_regular(path)) is None:
        raise FileNotFoundError(f"There is no file {path}.")
    return Pointer.of(json_of(content, str(path)), str(path))


def overrides_in(params: Path) -> list[str]:
    """Return the list `overrides` in a params.yaml: `["update.learning_rate=3e-4"]`.

    Raises ValueError if `overrides` is not a list of texts.
    """
    overrides = strict_yaml.settings(params).get("overrides", [])
    if not isinstance(overrides, list) or not all(isinstance(one, str) for one in overrides):
        raise ValueError(
            f"{params}: overrides: got {overrides!r}, expected a list of key=value, for example "
            "[update.learning_rate=3e-4]."
        )
    return [str(one) for one in overrides]


def remote(project: Path) -> str:
    """Return the address of the store for shared policies. It is the folder `agentfly` in DVC's
    default remote.

    Raises ValueError if the default remote is missing, if it is neither a folder nor s3://, or if
    the folder is a symbolic link.
    """
    from dvc.config import Config

    config = Config(str(project / ".dvc"), validate=False)
    if not (name := config["core"].get("remote")):
        raise ValueError(
            "DVC's default remote is not set. Set it with `dvc remote add --default shared "
            "s3://bucket/prefix` (or a folder), or use --remote."
        )
    url = str(config["remote"][name]["url"])
    if "://" in url and not url.startswith("s3://"):
        raise ValueError(
            f"DVC's remote {name!r} is {url}, expected a folder or s3://. Use --remote instead."
        )
    if "://" in url:
        return f"{url}/agentfly"
    folder = project / ".dvc" / url / "agentfly"
    if folder.is_symlink():
        raise ValueError(f"{folder} is a symbolic link. Replace it with a folder.")
    return str(folder)


def _quietly(words: Sequence[str], project: Path) -> tuple[int, str]:
    """Run DVC, and return its exit status and its output.

    An interrupt kills DVC and the stage that DVC runs. Only one such call at a time runs in a
    project, because of the lock file agentfly.lock. If this process is killed, DVC holds the lock
    until DVC exits.
    """
    folder = project / ".dvc" / "tmp"
    folder.mkdir(exist_ok=True)
    with (folder / "agentfly.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with _dvc(
            words,
            project,
            # its own process group, because a kill must also end the stage that DVC started
            process_group=0,
            pass_fds=[lock.fileno()],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as process:
            try:
                printed, _ = process.communicate()
            finally:
                # after an interrupt, DVC and its stage would otherwise outlive this process
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, printed


def _dvc(words: Sequence[str], project: Path, **options: Any) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    variables = {**environment(), "PATH": path, "DVC_NO_ANALYTICS": "1"}
    # -P: a module of the project must not hide one of DVC's
    command = [sys.executable, "-P", "-m", "dvc", "--wait-for-lock", *words]
    return subprocess.Popen(
        command, cwd=project, env=variables, stdin=subprocess.DEVNULL, text=True, **options
    )
