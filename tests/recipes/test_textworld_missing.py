"""The error without the package textworld."""

import sys

import pytest

from agentfly_core.recipes.textworld.dataset import textworld
from agentfly_core.recipes.textworld.environment import _textworld


def test_a_missing_package_is_named(monkeypatch):
    _textworld.cache_clear()
    monkeypatch.setitem(sys.modules, "textworld", None)
    with pytest.raises(ValueError, match=r"textworld is missing.*pip install textworld==1.7.0"):
        textworld(0, 1, 0, 1, worlds=8)
