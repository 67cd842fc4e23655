"""The command and the environment of the vLLM server."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agentfly_core.config.parts import AgentPart
from agentfly_core.config.site import Site
from agentfly_core.models import probe
from agentfly_core.models.known import VLLM_RANKS
from agentfly_core.system import hardware
from agentfly_core.system.service import Service, new_address, supervised

KIND, SERVED = "vllm", "policy"
"""Names of the service, and of the model that the server starts with."""
BATCHED_TOKENS = 2048
LONGEST_IDLE = 3600
SHARED_OUT = 64 * 2**20
CPU_BLOCK = 32
"""Tokens of a cache block, a multiple of 32 on CPU. Only whole blocks are shared: with vLLM's 128
up to 127 tokens of each reply would be recomputed.
"""
OWN_KERNELS = '{"custom_ops": ["all"]}'
"""Enables vLLM's own kernels, because nothing is compiled on CPU."""
NEEDED_AT_START = 0.01
"""The share of a GPU that must be free when vLLM starts. vLLM's default is 0.92, but the learner
may use most of the memory when a dead server restarts.
"""


@contextmanager
def served(
    model: Path,
    dtype: str,
    agent: AgentPart,
    site: Site,
    logs: Path,
    run: str,
    adapter_rank: int = 0,
    restarts: int = 3,
) -> Iterator[Service]:
    """Run a server during the block, see `launch` and `supervised`.

    The server may not be ready yet when the block starts.
    """
    address = new_address(KIND)
    command, environment = launch(address, model, dtype, agent, site, adapter_rank)
    log = logs / f"{KIND}.log"
    with supervised(KIND, command, environment, address, log, run, restarts) as service:
        yield service


def launch(
    address: Path, model: Path, dtype: str, agent: AgentPart, site: Site, adapter_rank: int = 0
) -> tuple[list[str], dict[str, str]]:
    """Return command and environment of a server on a UNIX socket, for adapters up to
    `adapter_rank`.

    The server loads a tokenizer only if there are stop strings. Log-probabilities include the
    temperature. Chunked prefill is off on CPUs, because vLLM 0.32 crashes there when it rewinds a
    request's generator. On GPUs the model is sharded over all GPUs of the sampler, and the server
    can sleep if the learner shares a GPU with it.
    """
    options: dict[str, str | int | float | Path] = {
        "model": model,
        "served-model-name": SERVED,
        "uds": address,
        "dtype": dtype,
        # the probe of the weights must also fit, plus one token
        "max-model-len": max(agent.max_model_len, probe.TOKENS + 1),
        "max-num-seqs": site.concurrency,
        # without chunked prefill a prompt must fit into one batch
        "max-num-batched-tokens": max(BATCHED_TOKENS, agent.max_model_len),
        "kv-cache-memory-bytes": int(site.vllm_memory_gib * 2**30),
        # otherwise the model's generation_config.json would change the sampling
        "generation-config": "vllm",
        "logprobs-mode": "processed_logprobs",
        "worker-extension-cls": "agentfly_core.inference.vllm_worker.Swap",
    }
    switches = ["enable-prefix-caching", "enable-scale-out"]
    switches += [] if agent.stop else ["skip-tokenizer-init", "tokens-only"]
    switches += ["disable-log-stats", "disable-uvicorn-access-log", "disable-fastapi-docs"]
    if site.device == "cpu":
        options |= {"block-size": CPU_BLOCK, "compilation-config": OWN_KERNELS}
        switches += ["enforce-eager", "no-enable-chunked-prefill"]
    else:
        options |= {
            "tensor-parallel-size": len(site.sampler_gpus),
            "gpu-memory-utilization": NEEDED_AT_START,
        }
        switches += ["enable-sleep-mode"] if site.shares_gpus else []
    if adapter_rank:
        options["max-lora-rank"] = next(rank for rank in VLLM_RANKS if rank >= adapter_rank)
        switches.append("enable-lora")
    command = [sys.executable, "-m", "agentfly_core.inference.vllm_program"]
    command += [text for name, value in options.items() for text in (f"--{name}", str(value))]
    return [*command, *(f"--{switch}" for switch in switches)], _environment(model, site)


def _environment(model: Path, site: Site) -> dict[str, str]:
    environment = {
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
        "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": str(LONGEST_IDLE),
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        # the model is a local folder; a request to the hub could hang without a network
        "HF_HUB_OFFLINE": "1",
    }
    if site.device == "cpu":
        # one process and no compilation: ready after 11 seconds instead of 44; a second thread
        # makes SmolLM2-135M faster and a nano model slower
        size = sum(path.stat().st_size for path in model.glob("*.safetensors"))
        environment |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "TORCH_COMPILE_DISABLE": "1"}
        environment |= {"OMP_NUM_THREADS": str(site.threads if size > SHARED_OUT else 1)}
        return environment | hardware.WAITING | hardware.KEEPING_MEMORY
    return environment | {
        hardware.VISIBLE: ",".join(hardware.visible(site.sampler_gpus)),
        "TRITON_F32_DEFAULT": "ieee",  # otherwise float32 attention would be rounded to TF32
    }
