"""Python programs that solve a machine-learning competition."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, get_args

from agentfly_core import ToolError

ScalerName = Literal["none", "standard"]
ModelName = Literal["linear", "neighbours", "vectors", "trees"]
SCALERS, MODELS = get_args(ScalerName), get_args(ModelName)
STRENGTHS, DEGREES = (1, 2, 3, 4), (1, 2)
_TEXTS = tomllib.loads(Path(__file__).with_name("solutions.toml").read_text())
LADDER: Mapping[str, str] = {
    name: _TEXTS["prelude"] + code for name, code in _TEXTS["ladder"].items()
}
"""Complete solutions of a machine-learning competition as Python programs, from simple to strong.

The first program copies the sample submission. The last program trains an ensemble.
"""


def program(scaler: str, model: str, strength: int, degree: int) -> str:
    """Return a Python program that trains a scikit-learn pipeline with these settings.

    Raises ToolError for an unknown strength or degree.
    """
    if strength not in STRENGTHS or degree not in DEGREES:
        raise ToolError(f"Got strength {strength} and degree {degree}, expected 1 to 4 and 1 or 2.")
    choices = f"scaler, degree, strength = {scaler == 'standard'}, {degree}, {strength}\n"
    return "".join([_TEXTS["prelude"], choices, _TEXTS["models"][model], _TEXTS["pipeline"]])
