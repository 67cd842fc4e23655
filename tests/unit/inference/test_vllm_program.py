"""vLLM's adapter kernels for CPU: products of the adapter for its tokens, 0 for others."""

import torch

from agentfly_core.inference.vllm_program import bgmv_expand, bgmv_expand_slice, bgmv_shrink

INPUTS = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
ADAPTER = torch.tensor([0, -1])
"""The first token has the adapter, the second has none."""


def test_the_first_product_is_scaled() -> None:
    down = torch.tensor([[[1.0, 1.0], [0.0, 1.0], [2.0, 0.0]]])
    output = torch.full((2, 4), 9.0)
    bgmv_shrink(INPUTS, down, output, ADAPTER, 0.5)
    assert output.tolist() == [[1.5, 1.0, 1.0, 9.0], [0.0, 0.0, 0.0, 9.0]]


def test_the_second_product_is_added_to_the_models_output() -> None:
    up = torch.tensor([[[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]]])
    output = torch.ones(2, 3)
    bgmv_expand(INPUTS, up, output, ADAPTER)
    assert output.tolist() == [[2.0, 3.0, 4.0], [1.0, 1.0, 1.0]]
    bgmv_expand(INPUTS, up, output, ADAPTER, add_inputs=False)
    assert output.tolist() == [[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]]


def test_a_part_of_a_fused_layer_changes_its_own_columns_only() -> None:
    up = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    output = torch.ones(2, 5)
    bgmv_expand_slice(INPUTS, up, output, ADAPTER, 2, 2)
    assert output.tolist() == [[1.0, 1.0, 2.0, 3.0, 1.0], [1.0] * 5]
