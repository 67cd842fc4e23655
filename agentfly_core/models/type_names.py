"""Types from pandas, torch and transformers, for use in annotations. Importing the libraries takes
seconds, so at run time the names of the types are only aliases of `object`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pandas import DataFrame
    from torch import Tensor
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
else:
    DataFrame = PreTrainedConfig = PreTrainedModel = PreTrainedTokenizerBase = Tensor = object

__all__ = ["DataFrame", "PreTrainedConfig", "PreTrainedModel", "PreTrainedTokenizerBase", "Tensor"]
