"""Play episodes outside of training, in shards (batches of episodes), and score the episodes."""

import logging
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path

from agentfly_core.config.experiment import Gates
from agentfly_core.config.reference import ScriptPolicy, WordPolicy, reference
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.memory import memory_folder
from agentfly_core.experiment.policy_path import policy_at
from agentfly_core.experiment.run_layout import PlayLayout, next_play
from agentfly_core.experiment.run_policies import last_policy
from agentfly_core.inference.random_policy import random_policy
from agentfly_core.models.type_names import PreTrainedTokenizerBase
from agentfly_core.pipeline import inputs
from agentfly_core.pipeline.play.mode import Mode
from agentfly_core.pipeline.play.player_services import PlayerServices
from agentfly_core.pipeline.play.players import RANDOM, ModelPlayer, Player, Script, oracle
from agentfly_core.pipeline.playing import OnEpisode, of_split, play_shard, rollout_spec, watching
from agentfly_core.pipeline.produce import publish
from agentfly_core.pipeline.scoring import score
from agentfly_core.pipeline.workers.local import LocalServices
from agentfly_core.records.dataset import split
from agentfly_core.records.parquet import SCORES, read_column, read_scores
from agentfly_core.records.run_record import ModeName, PlayRecord
from agentfly_core.records.trajectory import Problem, Scored, Trajectory
from agentfly_core.rollout.episode import RolloutSpec
from agentfly_core.rollout.rules import EpisodeSpec
from agentfly_core.runs.episodes import decode_with, trajectories_in
from agentfly_core.store.artifact import Artifact, ArtifactKey
from agentfly_core.store.store import Store
from agentfly_core.system.formats.file_shapes import ArtifactRecord
from agentfly_core.system.formats.hashing import digest
from agentfly_core.system.formats.json_value import as_json
from agentfly_core.system.formats.text import did_you_mean

logger = logging.getLogger(__name__)
OPEN = Gates(failed=1.0, unscored=1.0)
"""Limits that accept any share of failed and unscored episodes."""


@dataclass(frozen=True)
class PlayRequest:
    """A request to play `episodes` episodes.

    Example: `PlayRequest("run:demo@7", "train", 8, "", "agentfly play quickstart ...")`. `prepare`
    chooses the policy if `policy` is empty. If the problem id `problem` is empty, the first
    problems of the split are played. Otherwise all episodes play this problem. `command` is the
    command line, which is written to play.json.
    """

    policy: str
    split: str
    episodes: int
    problem: str
    command: str


@dataclass(frozen=True)
class Played:
    """Episodes that were played and scored. They are stored in the folder `plays/NAME`.

    `seconds` is the time from the first prompt to the last score.
    """

    name: str
    episodes: Sequence[Trajectory]
    scores: Sequence[Scored]
    seconds: float


def problems(folder: Path, name: str, most: int, named: str = "") -> list[Problem]:
    """Return the first problems of the split `name` of a dataset, at most `most` problems.

    If the split has problems of several tasks, the tasks alternate. If `named` is set, return only
    the problem with this id. Raises ValueError if the split is empty or the problem is missing.
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
    """Return the indices of `tasks` in an order in which the tasks alternate.

    Example: for `["sums", "sums", "shop"]`, return 0, 2, 1.
    """
    by_task: defaultdict[str, list[int]] = defaultdict(list)
    for row, task in enumerate(tasks):
        by_task[task].append(row)
    return [row for row in chain(*zip_longest(*by_task.values())) if row is not None]


@dataclass(frozen=True)
class PreparedPlay:
    """Episodes that are ready to be played. `player` generates the replies, and at most `at_once`
    episodes run at the same time.
    """

    experiment: Experiment
    request: PlayRequest
    player: Player
    data: Artifact
    episodes: Sequence[EpisodeSpec]
    at_once: int

    def play(self, logs: Path, mode: Mode) -> Played:
        """Play, publish and score the episodes.

        Episodes are stored in batches (shards) in the folder `plays/NAME`. NAME is the experiment's
        name with the next free number, such as `quickstart-1`. If an error occurs before the first
        batch is stored, the name becomes free again. Raises ServiceLost if the sampler dies,
        NoReply for an error in a policy function, and EpisodeBroken for an error in a template or a
        sampler.
        """
        here, store = self.experiment, self.experiment.store
        with PlayerServices(here, self.player).started(logs) as ready:
            changed = replace(
                ready, sampler=mode.sampler(ready.sampler, decode_with(ready.tokenizer))
            )
            remembered = isinstance(self.player, ModelPlayer) and self.player.memory
            memory = memory_folder(store, remembered) if remembered else None
            programs = here.site.programs
            spec = mode.rules(
                rollout_spec(
                    here.whole, here.mixture, ready.tokenizer, ready.frozen, programs, memory
                )
            )
            # the name is taken only after the start of the services, because a failed start must
            # not use up a name
            name = take_name(
                here,
                self.player.reference,
                self.request.split,
                self.request.command,
                mode.name,
                self.player,
            )
            layout = PlayLayout(name)
            try:
                publish_tokenizer(store, layout, ready.tokenizer)
                begun = time.monotonic()
                rollouts = self._rollouts(layout, changed, spec, mode.ended)
                ungated = here.on(here.settings.model_copy(update={"gates": OPEN}))
                scored = score(ungated, rollouts, 0, name)
                seconds = time.monotonic() - begun
            except BaseException:  # raised again
                if not store.holds(layout.rollout(0)):
                    store.remove(layout.uri)
                raise
        scores = read_scores(store.open(scored) / SCORES)
        return Played(name, trajectories_in(store, rollouts), scores, seconds)

    def _rollouts(
        self, layout: PlayLayout, services: LocalServices, spec: RolloutSpec, ended: OnEpisode
    ) -> list[Artifact]:
        """Play the episodes in batches of `at_once` episodes, and publish each batch."""
        digests = {"data": self.data.digest}
        if isinstance(self.player, ModelPlayer):
            digests |= self.player.digests
        progress = watching("play", 0, 0, len(self.episodes))

        def watch(trajectory: Trajectory) -> None:
            ended(trajectory)
            progress(trajectory)

        def make(start: int, folder: Path) -> Mapping[str, float]:
            shard = self.episodes[start : start + self.at_once]
            resources = services.resources
            return play_shard(spec, OPEN, services.sampler, shard, folder, watch, resources)

        return [
            publish(
                self.experiment.store,
                play_key(layout.rollout(number), digests),
                partial(make, start),
            )
            for number, start in enumerate(range(0, len(self.episodes), self.at_once))
        ]


def prepare(experiment: Experiment, request: PlayRequest, at_once: int) -> PreparedPlay:
    """Prepare the dataset and the player (a model or a function) of a request.

    If `request.policy` is empty, the last policy of the experiment's run is used. If this run has
    no policy yet, the base model is used. Raises ValueError if the policy or the problem is
    missing.
    """
    store, settings = experiment.store, experiment.settings
    data, name, count = inputs.dataset(experiment), request.split, request.episodes
    chosen = problems(store.open(data), name, count, request.problem)
    specs = of_split(settings.evaluate.temperature, settings.data_seed, chosen, name, count)
    run = experiment.run_name("", False)
    named = request.policy or (f"run:{run}" if last_policy(store, run) else "base")
    player: Player
    match reference(named, store.names("runs")):
        case WordPolicy.ORACLE:
            player = oracle(experiment.name, settings.warm_start, settings.seed, chosen)
        case WordPolicy.RANDOM:
            player = Script(named, RANDOM, random_policy)
        case ScriptPolicy(path):
            player = Script(named, path, policy_at(path, {}, chosen, settings.seed))
        case _:
            policy = inputs.policy_named(experiment, named, inputs.base_model)
            player = ModelPlayer(named, policy, experiment.memory_of(policy))
    return PreparedPlay(experiment, request, player, data, specs, at_once)


def take_name(
    experiment: Experiment,
    policy: str,
    split: str,
    command: str,
    mode: ModeName = "experiment",
    player: Player | None = None,
) -> str:
    """Write play.json into the next free folder `plays/NAME`, and return NAME.

    play.json describes the episodes that will be stored in the folder. `player` is the model or the
    function that will play the episodes, or None for imported episodes.
    """
    settings = experiment.settings
    sampled_from: ArtifactRecord | None = None
    if isinstance(player, ModelPlayer):
        sampled_from = {"uri": player.policy.uri, "digest": player.policy.digest}
    record: PlayRecord = {
        "experiment": experiment.name,
        "policy": policy,
        "sampled_from": sampled_from,
        "script": player.path if isinstance(player, Script) else None,
        "way": mode,
        "split": split,
        "seed": settings.seed,
        "settings": settings.model_dump(mode="json"),
        "settings_digest": settings.digest,
        "time_ms": int(time.time() * 1000),
        "command": command,
    }
    while True:
        name = next_play(experiment.store, experiment.name)
        if experiment.store.create_json(PlayLayout(name).record, as_json(record)):
            return name  # otherwise another process has taken the name


def publish_tokenizer(store: Store, layout: PlayLayout, tokenizer: PreTrainedTokenizerBase) -> None:
    """Store the tokenizer together with played episodes.

    The episodes can then be decoded after their model has been removed.
    """

    def save(folder: Path) -> Mapping[str, float]:
        tokenizer.save_pretrained(folder)
        return {}

    publish(store, play_key(layout.tokenizer, {}), save)


def play_key(uri: str, inputs: Mapping[str, str]) -> ArtifactKey:
    """Return the key to publish an artifact at the path `uri`, such as a batch of played episodes.

    `inputs` maps the names of the artifact's inputs to their digests.
    """
    return ArtifactKey(uri, "play", digest(["play", uri, dict(inputs)]), inputs)
