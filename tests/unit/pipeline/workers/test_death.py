"""The call that is blamed for the death of a worker."""

from agentfly_core.authoring.call_table import CallRecord
from agentfly_core.pipeline.workers.connection import Death

AGENT = CallRecord("The agent quiz", "9f2c", 1.0, 60.0, in_thread=False)
TOOL = CallRecord("The tool 'search'", "9f2c", 2.0, 30.0, in_thread=True)
OTHER = CallRecord("The agent quiz", "41d8", 3.0, 60.0, in_thread=False)
START = CallRecord("Shop()", "", 3.0, 60.0, in_thread=False)


def test_the_inner_call_of_an_episode_is_blamed() -> None:
    for running in ([AGENT, TOOL], [TOOL, AGENT]):
        assert Death("died", True, running, [AGENT, TOOL, OTHER]).culprit([]) == TOOL


def test_running_calls_of_two_episodes_are_suspects() -> None:
    death = Death("died", True, [OTHER, TOOL], [AGENT, TOOL, OTHER])
    assert death.culprit([]) is None
    assert death.suspects == ["9f2c", "41d8"]


def test_calls_under_way_are_blamed_if_none_runs() -> None:
    assert Death("died", True, [], [AGENT, TOOL]).culprit([]) == TOOL
    assert Death("died", True, [], [AGENT, OTHER]).culprit([]) is None


def test_a_kill_from_outside_blames_an_episode_that_plays_alone() -> None:
    death = Death("died", False, [TOOL], [AGENT, TOOL])
    assert death.culprit([]) is None
    assert death.culprit(["9f2c"]) == TOOL


def test_a_call_outside_of_episodes_is_not_blamed() -> None:
    assert Death("died", True, [START], [START]).culprit([]) is None
    assert Death("died", True, [START, TOOL], [START, TOOL]).suspects == ["9f2c"]
