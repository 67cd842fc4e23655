"""References to runs, steps and plays."""

from pathlib import Path

import pytest

from agentfly_core.config.reference import LastPolicy, RunPolicy
from agentfly_core.reports.show.sources import (
    EpisodeSource,
    PlayReference,
    against_of,
    reference,
)
from agentfly_core.store.store import Store


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


@pytest.mark.parametrize("text", ["", "demo@", "demo@last", "play:", "demo@7@8", "../demo"])
def test_a_wrong_reference_is_refused_with_the_valid_forms(text: str) -> None:
    with pytest.raises(ValueError, match="expected RUN, RUN@STEP"):
        reference(text)


def test_a_number_means_another_step_of_the_same_run(tmp_path: Path) -> None:
    store = Store.at(".", tmp_path)
    assert against_of("8", RunPolicy("demo", 9), store) == RunPolicy("demo", 8)
    assert against_of("other@8", RunPolicy("demo", 9), store) == RunPolicy("other", 8)
    assert against_of("play:shop-1", RunPolicy("demo", 9), store) == PlayReference("shop-1")
