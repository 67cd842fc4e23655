"""References to runs, steps and plays."""

from __future__ import annotations

import pytest

from agentfly_core.config.reference import LastPolicy, RunPolicy
from agentfly_core.reports.show.sources import (
    EpisodeSource,
    PlayReference,
    against,
    reference,
)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("demo", LastPolicy("demo")),
        ("demo@7", RunPolicy("demo", 7)),
        ("run:demo@0", RunPolicy("demo", 0)),
        ("nightly-2026-11-20@40", RunPolicy("nightly-2026-11-20", 40)),
        ("play:quickstart-1", PlayReference("quickstart-1")),
    ],
)
def test_a_run_a_step_and_a_play_are_named(text: str, named: EpisodeSource) -> None:
    assert reference(text) == named


def test_a_step_may_be_an_option_and_must_be_single() -> None:
    assert reference("demo", 7) == reference("demo@7", 7) == RunPolicy("demo", 7)
    with pytest.raises(ValueError, match="name one step"):
        reference("demo@6", 7)
    with pytest.raises(ValueError, match="is not a run"):
        reference("play:quickstart-1", 7)


@pytest.mark.parametrize("text", ["", "demo@", "demo@last", "play:", "demo@7@8", "../demo"])
def test_a_wrong_reference_is_refused_with_the_valid_forms(text: str) -> None:
    with pytest.raises(ValueError, match="expected RUN, RUN@STEP"):
        reference(text)


def test_a_number_means_another_step_of_the_same_run() -> None:
    assert against("8", RunPolicy("demo", 9)) == RunPolicy("demo", 8)
    assert against("other@8", RunPolicy("demo", 9)) == RunPolicy("other", 8)
    with pytest.raises(ValueError, match="expected play:NAME"):
        against("8", PlayReference("quickstart-1"))
