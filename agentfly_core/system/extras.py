"""Optional dependencies."""

from __future__ import annotations

import importlib.util


def require_package(requirement: str, extra: str) -> None:
    """Raise ValueError without a package: `require_package("math-verify==0.9.0", "math")`."""
    name = requirement.partition("==")[0]
    if importlib.util.find_spec(name.replace("-", "_")) is None:
        raise ValueError(
            f"The package {name} is missing: pip install {requirement} (the extra `{extra}`)."
        )
