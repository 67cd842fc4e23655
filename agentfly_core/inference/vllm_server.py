"""The command and the environment variables of the vLLM server."""

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
"""The name of the service, and the name of the model with which the server starts. Requests use
this name of the model unless an adapter is loaded.
"""
BATCHED_TOKENS = 2048
LONGEST_IDLE = 3600
SHARED_OUT = 64 * 2**20
CPU_BLOCK = 32
"""The number of tokens in a block of the prefix cache. On CPU it must be a multiple of 32. Only
whole blocks are reused. With vLLM's default of 128, up to 127 tokens of each reply would be
recomputed.
"""
OWN_KERNELS = '{"custom_ops": ["all"]}'
"""A vLLM setting for CPUs, which enables vLLM's own kernels. torch.compile is off on CPUs, so there
are no compiled kernels to use instead.
"""
NEEDED_AT_START = 0.01
"""The share of a GPU's memory that must be free when vLLM starts. With vLLM's default of 0.92, a
dead server could not restart while the learner uses most of the memory.
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
    """Run a vLLM server until the end of the `with` block; see `launch` and `supervised`.

    When the `with` block begins, the server may still be starting.
    """
    address = new_address(KIND)
    command, environment = launch(address, model, dtype, agent, site, adapter_rank)
    log = logs / f"{KIND}.log"
    with supervised(KIND, command, environment, address, log, run, restarts) as service:
        yield service


def launch(
    address: Path, model: Path, dtype: str, agent: AgentPart, site: Site, adapter_rank: int = 0
) -> tuple[list[str], dict[str, str]]:
    """Return the command and the environment variables of a server on a UNIX socket.

    `adapter_rank` is the largest rank of an adapter; 0 means that adapters are not supported. The
    server loads a tokenizer only if the agent has stop strings. Log-probabilities are computed
    after the logits are divided by the temperature. On CPUs, chunked prefill is off. With chunked
    prefill, vLLM 0.32 rewinds the random generator of a request. PyTorch cannot rewind a generator
    on a CPU, so vLLM would crash. On GPUs, tensor parallelism splits the model over all GPUs of the
    sampler. If the learner shares a GPU with the server, vLLM's sleep mode is enabled.
    """
    options: dict[str, str | int | float | Path] = {
        "model": model,
        "served-model-name": SERVED,
        "uds": address,
        "dtype": dtype,
        # the probe (tokens that check the weights) must also fit, plus one token
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
        # the model is a local folder, and without a network a request to the hub could hang
        "HF_HUB_OFFLINE": "1",
    }
    if site.device == "cpu":
        # With one process and without compilation, the server is ready after 11 seconds instead of
        # 44. A second thread makes SmolLM2-135M faster, but a nano model slower.
        size = sum(path.stat().st_size for path in model.glob("*.safetensors"))
        environment |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "TORCH_COMPILE_DISABLE": "1"}
        environment |= {"OMP_NUM_THREADS": str(site.threads if size > SHARED_OUT else 1)}
        return environment | hardware.WAITING | hardware.KEEPING_MEMORY
    return environment | {
        hardware.VISIBLE: ",".join(hardware.visible(site.sampler_gpus)),
        "TRITON_F32_DEFAULT": "ieee",  # otherwise float32 attention would be rounded to TF32
    }
