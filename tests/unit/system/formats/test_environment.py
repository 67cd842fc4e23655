"""Other threads may change the environment while it is copied."""

import os

from agentfly_core.system.formats.text import environment


def test_a_variable_removed_during_the_copy_is_left_out(monkeypatch):
    monkeypatch.setenv("AGENTFLY_KEPT", "1")
    monkeypatch.setenv("AGENTFLY_REMOVED", "1")

    class Vanishing(type(os.environ)):
        def __iter__(self):
            names = list(super().__iter__())
            del os.environ["AGENTFLY_REMOVED"]
            return iter(names)

    monkeypatch.setattr(os.environ, "__class__", Vanishing)
    copied = environment()
    assert copied["AGENTFLY_KEPT"] == "1"
    assert "AGENTFLY_REMOVED" not in copied
