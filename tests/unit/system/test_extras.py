"""Optional dependencies of parts."""

from __future__ import annotations

import pytest

from agentfly_core.system.extras import require_package


def test_a_missing_package_has_its_install_command() -> None:
    require_package("pytest==1.0", "test")
    message = r"The package no-such is missing: pip install no-such==1\.0 \(the extra `odd`\)"
    with pytest.raises(ValueError, match=message):
        require_package("no-such==1.0", "odd")
