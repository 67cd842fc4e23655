"""What a person names on the command line: a run, a run's step, or played episodes."""

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
    """What RUN, RUN@STEP (run: may stand before it) or play:NAME names; `step` is given beside it.

    Raises ValueError for anything else, and for two steps that differ.
    """
    if play := OF_PLAY.fullmatch(text):
        if step is not None:
            raise ValueError(f"{text} has no steps; leave --step {step} out.")
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
    """What a step's number, RUN@STEP or play:NAME names beside what is shown; raises ValueError."""
    if not text.isdecimal():
        return reference(text)
    if isinstance(shown, PlayReference):
        raise ValueError(
            f"--against: got {text}, and played episodes have no steps; name play:NAME."
        )
    return RunPolicy(shown.run, int(text))
