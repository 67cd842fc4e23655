"""Types of heavy libraries for annotations, because importing the libraries takes seconds."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pandas import DataFrame
    from torch import Tensor
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
else:
    DataFrame = PreTrainedConfig = PreTrainedModel = PreTrainedTokenizerBase = Tensor = object

__all__ = ["DataFrame", "PreTrainedConfig", "PreTrainedModel", "PreTrainedTokenizerBase", "Tensor"]
