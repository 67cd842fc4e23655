"""One call of `agentfly play`: from an experiment and what was asked for to stored episodes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from agentfly_core.experiment.experiment import Experiment
from agentfly_core.pipeline import inputs
from agentfly_core.pipeline.play import episodes, players
from agentfly_core.pipeline.play.episodes import Played, PlayPlan
from agentfly_core.pipeline.play.mode import Mode
from agentfly_core.pipeline.play.players import Player
from agentfly_core.pipeline.play.services import services
from agentfly_core.pipeline.playing import of_split, rollout_spec
from agentfly_core.runs.episodes import decode_with


@dataclass(frozen=True)
class PlayRequest:
    """Request to play: `PlayRequest("oracle", "train", 8, "", "agentfly play quickstart ...")`.

    `policy` and `problem` may be empty; `episodes` are of the first problems of the split, or all
    of the one `problem`.
    """

    policy: str
    split: str
    episodes: int
    problem: str
    command: str


@dataclass(frozen=True)
class PreparedPlay:
    """What is about to be played: `PreparedPlay(Script("oracle", ...), PlayPlan("train", ...))`."""

    player: Player
    plan: PlayPlan


def prepare(experiment: Experiment, request: PlayRequest, at_once: int) -> PreparedPlay:
    """Prepare the dataset and the policy; raises ValueError for what is not there."""
    data = inputs.dataset(experiment)
    folder = experiment.store.open(data)
    chosen = episodes.problems(folder, request.split, request.episodes, request.problem)
    temperature, seed = experiment.settings.evaluate.temperature, experiment.settings.data_seed
    specs = of_split(temperature, seed, chosen, request.split, request.episodes)
    plan = PlayPlan(request.split, data, specs, at_once, request.command)
    return PreparedPlay(players.player(experiment, request.policy, chosen), plan)


def play(experiment: Experiment, prepared: PreparedPlay, logs: Path, mode: Mode) -> Played:
    """Play and store the episodes in this mode; services end with the call. Raises as
    `episodes.play`.
    """
    with services(experiment, prepared.player, logs) as ready:
        sampler = mode.sampler(ready.sampler, decode_with(ready.tokenizer))
        changed = replace(ready, sampler=sampler)
        spec = mode.rules(rollout_spec(experiment, ready.tokenizer, ready.frozen))
        return episodes.play(experiment, prepared.player, changed, spec, prepared.plan, mode)
