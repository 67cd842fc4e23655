"""vLLM and the learner on the same GPUs: requests to vLLM, by a server that keeps notes of
it.
"""

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from agentfly_core.config import loading
from agentfly_core.config.experiment import Settings
from agentfly_core.config.site import Site
from agentfly_core.experiment import checks
from agentfly_core.inference.in_process import TransformersSampler
from agentfly_core.inference.sampler import Sampler
from agentfly_core.inference.scripted import Scripted
from agentfly_core.inference.vllm_client import VLLM
from agentfly_core.inference.vllm_server import launch
from agentfly_core.system.service import Service, ServiceLost
from agentfly_core.testing.episodes import saying
from tests.support.experiments import TINY

TOKENS, LOGPROBS = list(range(40, 72)), [-float(place) for place in range(31)]
SCIENCE = Settings.model_validate(
    {
        "model": "nano:calculator",
        "data": {"use": "agentfly_core.datasets.arithmetic:arithmetic", "train": 1, "test": 1},
        "rewards": {"agentfly_core.rewards.exact:exact": 1.0},
        "steps": 1,
    }
)


class Notes:
    """A replacement of a vLLM server that notes each change of its state."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.label = "default"

    async def answer(self, request: web.Request) -> web.Response:
        """Do as if it were so."""
        given = await request.json() if request.can_read_body else {}
        if request.method == "POST" and request.path != "/inference/v1/generate":
            self.asked.append(request.path_qs)
        self.label = given.get("new_version", self.label)
        prompt_logprobs = [
            None,
            *({str(t): {"logprob": p}} for t, p in zip(TOKENS[1:], LOGPROBS, strict=True)),
        ]
        probe: dict[str, Any] = {
            "weight_version": self.label,
            "data": [{"id": "policy"}],
            "success": True,
        }
        return web.json_response({**probe, "prompt_logprobs": prompt_logprobs})


@pytest.fixture
async def notes() -> AsyncIterator[tuple[Notes, VLLM]]:
    """The notes, and a sampler that takes turns with a learner."""
    with tempfile.TemporaryDirectory(prefix="agentfly-") as folder:
        app, kept, address = web.Application(), Notes(), f"{folder}/vllm.sock"
        app.router.add_route("*", "/{path:.*}", kept.answer)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.UnixSite(runner, address).start()
        yield kept, VLLM(Service("vllm", address), "float32", 8, takes_turns=True)
        await runner.cleanup()


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    (tmp_path / "probe.json").write_text(json.dumps({"tokens": TOKENS, "logprobs": LOGPROBS}))
    (tmp_path / "config.json").write_text('{"tie_word_embeddings": false}')
    return tmp_path


SWAP = [
    "/update_weight_version",
    "/collective_rpc",
    "/reset_prefix_cache",
    "/update_weight_version",
]


async def test_vllm_sleeps_during_an_update(notes: tuple[Notes, VLLM], policy: Path) -> None:
    kept, sampler = notes
    await asyncio.to_thread(sampler.rest)
    assert kept.asked == ["/sleep?level=1"]
    await asyncio.to_thread(sampler.load, policy, 1)
    assert kept.asked[1:] == ["/wake_up", *SWAP]


async def test_a_loaded_policy_is_not_read_again_after_a_sleep(
    notes: tuple[Notes, VLLM], policy: Path
) -> None:
    kept, sampler = notes
    await asyncio.to_thread(sampler.load, policy, 1)
    kept.asked.clear()
    await asyncio.to_thread(sampler.rest)
    await asyncio.to_thread(sampler.load, policy, 1)
    assert kept.asked == ["/sleep?level=1", "/wake_up"]


async def test_vllm_with_gpus_of_its_own_never_sleeps(
    notes: tuple[Notes, VLLM], policy: Path
) -> None:
    kept, sampler = notes[0], replace(notes[1], takes_turns=False)
    await asyncio.to_thread(sampler.rest)
    await asyncio.to_thread(sampler.load, policy, 1)
    assert kept.asked == SWAP


def test_a_sleep_of_a_dead_server_is_a_lost_sampler(tmp_path: Path) -> None:
    gone = Service("vllm", str(tmp_path / "vllm.sock"))
    with pytest.raises(ServiceLost, match="ended, or never started"):
        VLLM(gone, "float32", 8, takes_turns=True).rest()


@pytest.mark.parametrize(
    "sampler", [TransformersSampler(), Scripted(lambda text: [1], 2, saying("99"))]
)
def test_other_samplers_never_sleep(sampler: Sampler) -> None:
    sampler.rest()


@pytest.mark.parametrize(
    ("gpus", "visible", "parallel", "sleeps"),
    [
        ({}, "0", "1", True),
        ({"sampler_gpus": (0, 1), "learner_gpus": (2, 3)}, "0,1", "2", False),
        ({"sampler_gpus": (3,), "ranks": 4}, "3", "1", True),
    ],
)
def test_the_vllm_command_has_its_gpus_and_sleep_mode(
    gpus: dict[str, Any],
    visible: str,
    parallel: str,
    sleeps: bool,
    policy: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    site = Site.model_validate({"sampler": "vllm", "device": "cuda", "vllm_memory_gib": 20, **gpus})
    command, environment = launch(policy / "vllm.sock", policy, SCIENCE.dtype, SCIENCE.agent, site)
    assert environment["CUDA_VISIBLE_DEVICES"] == visible
    assert environment["TRITON_F32_DEFAULT"] == "ieee", "float32 attention is not rounded to TF32"
    assert command[command.index("--tensor-parallel-size") + 1] == parallel
    assert command[command.index("--kv-cache-memory-bytes") + 1] == str(20 * 2**30)
    assert ("--enable-sleep-mode" in command) is sleeps


def test_vllm_on_a_cpu_never_sleeps(policy: Path) -> None:
    command, environment = launch(
        policy / "vllm.sock", policy, SCIENCE.dtype, SCIENCE.agent, Site(sampler="vllm")
    )
    assert not {"--enable-sleep-mode", "--tensor-parallel-size", "--gpu-memory-utilization"} & {
        *command
    }
    assert "CUDA_VISIBLE_DEVICES" not in environment


def test_playing_ahead_on_shared_gpus_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY)
    ahead = ["rollout.max_staleness=1", "update.old_logprobs=sampler"]
    settings = loading.read(str(tmp_path / "tiny.yaml"), ahead).settings
    with pytest.raises(ValueError, match=r"max_staleness is 1, .*GPUs \[0\]"):
        checks.check_place(settings, Site(sampler="vllm", device="cuda", ranks=4))
    checks.check_place(settings, Site(sampler="vllm", device="cuda", learner_gpus=(1, 2)))
    checks.check_place(settings, Site(sampler="vllm"))


def test_a_float32_adapter_for_vllm_on_a_gpu_is_refused(
    tmp_path: Path,
) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY)
    settings = loading.read(str(tmp_path / "tiny.yaml"), ["adapter={rank: 4}"]).settings
    with pytest.raises(
        ValueError,
        match="Set dtype=bfloat16",
    ):
        checks.check_place(settings, Site(sampler="vllm", device="cuda"))
    checks.check_place(settings, Site(sampler="vllm"))
    checks.check_place(settings, Site(sampler="transformers", device="cuda"))
    checks.check_place(
        settings.model_copy(update={"dtype": "bfloat16"}), Site(sampler="vllm", device="cuda")
    )
