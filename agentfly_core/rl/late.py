"""Import torch and numpy only when they are first used, because checks of settings do not need
them.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import Tensor
else:

    class _Package:
        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, attribute: str) -> Any:
            return getattr(__import__(self._name), attribute)

    np, torch, Tensor = _Package("numpy"), _Package("torch"), object

__all__ = ["Tensor", "np", "torch"]
