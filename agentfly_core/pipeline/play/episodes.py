"""Episodes that are played and stored: chosen from a split, played in shards, scored."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path

from agentfly_core.config.experiment import Gates
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.play_layout import PlayLayout, next_play
from agentfly_core.pipeline.play.mode import Mode
from agentfly_core.pipeline.play.players import ModelPlayer, Player
from agentfly_core.pipeline.playing import OnEpisode, play_shard, watching
from agentfly_core.pipeline.produce import publish
from agentfly_core.pipeline.scoring import score
from agentfly_core.pipeline.services import RolloutServices
from agentfly_core.records.dataset import split
from agentfly_core.records.parquet import SCORES, read_column, read_scores
from agentfly_core.records.run_record import ArtifactRecord, ModeName, PlayRecord
from agentfly_core.records.trajectory import Problem, Scored, Trajectory
from agentfly_core.rollout.episode import RolloutSpec
from agentfly_core.rollout.rules import EpisodeSpec
from agentfly_core.runs.episodes import trajectories_in
from agentfly_core.store.artifact import Artifact, ArtifactKey
from agentfly_core.store.store import Store
from agentfly_core.system.formats.hashing import digest
from agentfly_core.system.formats.json_value import as_json
from agentfly_core.system.formats.text import did_you_mean

OPEN = Gates(failed=1.0, unscored=1.0)
"""What is played to be looked at is stored, however much of it went wrong."""


@dataclass(frozen=True)
class PlayPlan:
    """What is to be played, `at_once` episodes at the same time, and the command that asked for it:
    `PlayPlan("train", data, episode_specs, 128, "agentfly play quickstart --policy oracle")`.
    """

    split: str
    data: Artifact
    episodes: Sequence[EpisodeSpec]
    at_once: int
    command: str

    @property
    def shards(self) -> list[Sequence[EpisodeSpec]]:
        """The episodes that are played at the same time and stored together."""
        starts = range(0, len(self.episodes), self.at_once)
        return [self.episodes[start : start + self.at_once] for start in starts]


@dataclass(frozen=True)
class Played:
    """What was played, stored as `name`, with its scores; `seconds` from the first prompt to the
    last score that is stored.
    """

    name: str
    episodes: Sequence[Trajectory]
    scores: Sequence[Scored]
    seconds: float


def problems(folder: Path, name: str, most: int, named: str = "") -> list[Problem]:
    """At most `most` problems of a split of a prepared dataset, the first ones, of the tasks in
    turn, or the one of this id; raises ValueError where there is none.
    """
    file = folder / f"{name}.parquet"
    ids = read_column(file, "id")
    if not ids:
        raise ValueError(
            f"The {name} split is empty; raise data.{name}, or choose another --split."
        )
    if not named:
        return split(folder, name, in_turn(read_column(file, "task"))[:most])
    if named not in ids:
        raise ValueError(f"The {name} split has no problem {named!r}.{did_you_mean(named, ids)}")
    return split(folder, name, [ids.index(named)])


def in_turn(tasks: Sequence[str]) -> list[int]:
    """Return the rows of problems of these tasks, one of each task after the other: of
    `["sums", "sums", "shop"]` 0, 2, 1.
    """
    by_task: defaultdict[str, list[int]] = defaultdict(list)
    for row, task in enumerate(tasks):
        by_task[task].append(row)
    return [row for row in chain(*zip_longest(*by_task.values())) if row is not None]


def play(
    experiment: Experiment,
    player: Player,
    services: RolloutServices,
    spec: RolloutSpec,
    plan: PlayPlan,
    mode: Mode,
) -> Played:
    """Play, publish and score the episodes under the experiment's next free name; the mode hears of
    each that ends.

    What ends it before any shard is stored leaves nothing. Raises SamplerLost with the sampler,
    NoReply with a scripted policy, and EpisodeBroken for what other code of an author raised.
    """
    store, name = experiment.store, _take_name(experiment, player, plan, mode.name)
    layout = PlayLayout(name)
    try:
        publish(store, _key(layout.tokenizer, {}), partial(_save, services))
        inputs = {"data": plan.data.digest}
        if isinstance(player, ModelPlayer):
            inputs["policy"] = player.policy.digest
        begun = time.monotonic()
        rollouts = list(_rollouts(store, services, spec, plan, mode.ended, inputs, layout))
        ungated = experiment.on(experiment.settings.model_copy(update={"gates": OPEN}))
        scored = score(ungated, rollouts, 0, name)
        seconds = time.monotonic() - begun
    except BaseException:  # whatever it is, it passes on
        if not store.holds(layout.rollout(0)):
            store.remove(layout.uri)
        raise
    played = trajectories_in(store, rollouts)
    return Played(name, played, read_scores(store.open(scored) / SCORES), seconds)


def _rollouts(
    store: Store,
    services: RolloutServices,
    spec: RolloutSpec,
    plan: PlayPlan,
    ended: OnEpisode,
    inputs: Mapping[str, str],
    layout: PlayLayout,
) -> Iterator[Artifact]:
    """Play and publish one shard after the other."""
    progress = watching("play", 0, 0, len(plan.episodes))

    def watch(trajectory: Trajectory) -> None:
        ended(trajectory)
        progress(trajectory)

    def make(shard: Sequence[EpisodeSpec], folder: Path) -> Mapping[str, float]:
        return play_shard(spec, OPEN, services.sampler, shard, folder, watch, services.environments)

    for number, shard in enumerate(plan.shards):
        target = _key(layout.rollout(number), inputs)
        yield publish(store, target, partial(make, shard))


def _save(services: RolloutServices, folder: Path) -> Mapping[str, float]:
    services.tokenizer.save_pretrained(folder)
    return {}


def _take_name(experiment: Experiment, player: Player, plan: PlayPlan, mode: ModeName) -> str:
    """The next free name, taken by writing its play.json."""
    settings = experiment.settings
    sampled_from: ArtifactRecord | None = None
    if isinstance(player, ModelPlayer):
        sampled_from = {"uri": player.policy.uri, "digest": player.policy.digest}
    record: PlayRecord = {
        "experiment": experiment.name,
        "policy": player.reference,
        "sampled_from": sampled_from,
        "script": None if isinstance(player, ModelPlayer) else player.path,
        "way": mode,
        "split": plan.split,
        "seed": settings.seed,
        "settings": settings.model_dump(mode="json"),
        "settings_digest": settings.digest,
        "time_ms": int(time.time() * 1000),
        "command": plan.command,
    }
    while True:
        name = next_play(experiment.store, experiment.name)
        if experiment.store.create_json(PlayLayout(name).record, as_json(record)):
            return name  # or another process took it meanwhile


def _key(uri: str, inputs: Mapping[str, str]) -> ArtifactKey:
    return ArtifactKey(uri, "play", digest(["play", uri, dict(inputs)]), inputs)
