"""The command that starts vLLM."""

from pathlib import Path

import pytest

from agentfly_core.config.parts import AgentPart
from agentfly_core.config.site import Site
from agentfly_core.inference.vllm_server import launch


@pytest.mark.parametrize(("rank", "largest"), [(1, "1"), (6, "8"), (8, "8")])
def test_vllm_gets_the_next_rank_that_it_allows(rank: int, largest: str, tmp_path: Path) -> None:
    command, _ = launch(
        tmp_path / "vllm.sock", tmp_path, "float32", AgentPart(), Site(sampler="vllm"), rank
    )
    assert command[command.index("--max-lora-rank") + 1] == largest
    assert "--enable-lora" in command


def test_vllm_keeps_no_room_for_adapters_that_nobody_trains(tmp_path: Path) -> None:
    command, _ = launch(
        tmp_path / "vllm.sock", tmp_path, "float32", AgentPart(), Site(sampler="vllm")
    )
    assert not {"--enable-lora", "--max-lora-rank"} & {*command}
