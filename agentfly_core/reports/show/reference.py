"""Names on the command line of a run, a run's step, or played episodes."""

from __future__ import annotations

import re
from dataclasses import dataclass

from agentfly_core.config.reference import NAME, LastPolicy, RunPolicy, policy_of_run

OF_PLAY = re.compile(rf"play:({NAME})")


@dataclass(frozen=True, slots=True)
class PlayReference:
    """`play:quickstart-1` is `PlayReference("quickstart-1")`."""

    name: str


EpisodeSource = RunPolicy | LastPolicy | PlayReference
"""LastPolicy is a run whose step is not named."""


def reference(text: str, step: int | None = None) -> EpisodeSource:
    """Parse RUN, RUN@STEP, both with or without `run:`, or play:NAME; `step` is the option --step.

    Raises ValueError for anything else, and for two different steps.
    """
    if play := OF_PLAY.fullmatch(text):
        if step is not None:
            raise ValueError(f"{text} is not a run: leave --step {step} out.")
        return PlayReference(play[1])
    run = policy_of_run(text)
    if run is None:
        raise ValueError(
            f"Got {text!r}, expected RUN, RUN@STEP (such as demo@7, 0 is the start) or play:NAME; "
            "`agentfly list` shows the runs."
        )
    if run.step is not None and step not in (None, run.step):
        raise ValueError(f"Got {text} and --step {step}: name one step.")
    return run if step is None else RunPolicy(run.run, step)


def against(text: str, shown: EpisodeSource) -> EpisodeSource:
    """Parse --against: a step of the same run, RUN@STEP or play:NAME; raises ValueError."""
    if not text.isdecimal():
        return reference(text)
    if isinstance(shown, PlayReference):
        raise ValueError(f"--against: got step {text} of played episodes, expected play:NAME.")
    return RunPolicy(shown.run, int(text))
