"""Types of transformers for annotations, because importing transformers takes seconds."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
else:
    PreTrainedConfig = PreTrainedModel = PreTrainedTokenizerBase = object

__all__ = ["PreTrainedConfig", "PreTrainedModel", "PreTrainedTokenizerBase"]
