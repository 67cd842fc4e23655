"""The keys under which the outputs of stages are stored.

A key is a digest of the inputs of a stage and of the settings that the stage reads. If a stage
begins to compute a different output from the same inputs, its number in `VERSIONS` is increased.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from agentfly_core.config.experiment import Settings
from agentfly_core.config.import_path import load, types_of
from agentfly_core.config.reference import OwnNano, chat_file, model_reference
from agentfly_core.config.section import at_keys, resumable
from agentfly_core.config.site import Endpoint
from agentfly_core.config.tasks import datasets
from agentfly_core.experiment.memory import MEMORY
from agentfly_core.experiment.run_layout import RunLayout, shard_uri
from agentfly_core.store.artifact import Artifact, ArtifactKey, Pointer
from agentfly_core.system.files import sha256, unchanged_sha256
from agentfly_core.system.formats.hashing import digest
from agentfly_core.system.formats.json_value import JSON

STAGES = "prepare", "model", "demonstrate", "warm_start", "rollout", "score", "update", "evaluate"
VERSIONS: Mapping[str, int] = dict.fromkeys(STAGES, 1)
UPDATE = ("algorithm", "update", "adapter", "dtype", "rollout", "seed", "night", "code.update")
SHARED = "artifacts"
"""Name of the folder with the artifacts that all runs of a store share."""
FINE_TUNING = tuple(
    f"warm_start.{key}" for key in ("rounds", "epochs_per_round", "batch", "learning_rate")
)
"""Settings of the warm start (supervised fine-tuning) that affect only the training on the
demonstrations. The key of the demonstrations excludes these settings.
"""
PLAY = ("template", "agent", "tools", "environments", "tasks", "seed")


@dataclass(frozen=True, slots=True)
class StageKeys:
    """The keys of the outputs of an experiment's stages: `StageKeys(settings).prepare()`."""

    settings: Settings

    def prepare(self) -> ArtifactKey:
        """Return the key of the dataset, the artifact of the stage `prepare`.

        If settings of the dataset name files, the key covers the contents of these files.
        """
        read = {}
        for name, path in self.data_files().items():
            if path.is_file():
                read[name] = sha256(path)
            else:  # for a folder: the names and contents of all files
                files = sorted(file for file in path.rglob("*") if file.is_file())
                read[name] = digest(
                    [[one.relative_to(path).as_posix(), sha256(one)] for one in files]
                )
        made_by = {path.partition(":")[0] for path in datasets(self.settings.data.model_dump())}
        code = self.settings.code.get("prepare", {})
        # `code.prepare` also has the modules of evaluate.datasets and promotion.datasets
        own = {module: code[module] for module in code if module in made_by}
        settings = self.settings.of_data.model_copy(
            update={"code": {**self.settings.code, "prepare": own} if own else {}}
        )
        return StageKeys(settings)._shared("prepare", ("data", "seed", "code.prepare"), read)

    def solvable(self, data: Pointer) -> str:
        """Return the path of the report on whether the problems of a dataset can be solved."""
        reads = (*PLAY, "rewards", "warm_start", "code.score", "code.demonstrate")
        key = self._key("score", reads, {"data": data.digest}, "solvable")
        return f"{SHARED}/solvable/{key[:16]}.json"

    def data_files(self) -> dict[str, Path]:
        """Return the files in the settings of the dataset, by the key of the setting:
        `{"train_file": Path("train.jsonl")}`.

        In a mixture of tasks, the key begins with the task: `{"sums/train_file":
        Path("train.jsonl")}`. The files of a list are numbered: `{"files/0": Path("train.jsonl")}`.
        A setting of the type Path may also name a folder. Missing files are left out.
        """
        paths = {}
        for task, one in self.settings.each.items():
            settings = one.data.settings
            kinds = types_of(load(one.data.use), settings.keys())
            for name, value in settings.items():
                key = f"{task}/{name}" if self.settings.tasks else name
                for part, text in _texts(key, value):
                    if _takes_paths(kinds.get(name)) or os.path.isfile(text):
                        paths[part] = Path(text)
        return {name: path for name, path in paths.items() if path.exists()}

    def model(self) -> ArtifactKey:
        """Return the key of the base model. If the model is a local folder, the key covers the
        contents of its files.
        """
        return self._shared("model", ("model", "dtype"), self.model_files())

    def model_files(self) -> dict[str, str]:
        """Return the SHA-256 digest of each file of a local model, by the file's relative path.

        The result is empty if `model` does not name a folder.
        """
        folder = Path(self.settings.model)
        inside = folder.rglob("*") if os.path.isdir(self.settings.model) else ()
        files = sorted(path for path in inside if path.is_file())
        return {path.relative_to(folder).as_posix(): unchanged_sha256(path) for path in files}

    def model_digest(self) -> str:
        """Return the digest of the model's files, or an empty text if the run does not start from a
        model folder.
        """
        files = {} if self.settings.fork else self.model_files()
        return digest(files) if files else ""

    def base_model(self, data: Artifact | None) -> ArtifactKey | None:
        """Return the key of the base model.

        The tiny model `nano` is made from the dataset `data`. Without `data`, the result for
        `nano` is None.
        """
        if not isinstance(model_reference(self.settings.model), OwnNano):
            return self.model()
        if data is None:
            return None
        warm_start = self.settings.warm_start
        shown: list[JSON] = [warm_start.demonstrations, warm_start.settings] if warm_start else []
        # only the training split, because the model does not depend on the other splits
        train = data.manifest["files"]["train.parquet"]["sha256"]
        inputs = {"train": train, "demonstrations": digest(shown), **self._chats()}
        played = ("template", "agent", "tools", "environments", "tasks")
        reads = ("model", "nano", "dtype", *played, "code.demonstrate")
        return self._shared("model", reads, inputs)

    def demonstrations(
        self,
        model: Pointer,
        data: Pointer,
        frozen: Mapping[str, str],
        memory: Pointer | None = None,
    ) -> ArtifactKey:
        """Return the key of the demonstrations for the warm start (supervised fine-tuning).

        `frozen` maps each untrained role (kind of speaker) to a digest or to SELF (see
        `Experiment.frozen`). `memory` is the memory (a folder of files) that episodes with the
        policy `model` read.
        """
        inputs = {"model": model.digest, "data": data.digest, **_players(frozen, memory)}
        inputs |= self._chats()
        reads = (*PLAY, "warm_start", "code.demonstrate")
        return self._shared("demonstrate", reads, inputs)

    def _chats(self) -> dict[str, str]:
        warm_start = self.settings.warm_start
        file = chat_file(warm_start.demonstrations) if warm_start else None
        return {"chats": sha256(file)} if file and file.is_file() else {}

    def warm_start(self, model: Pointer, demonstrations: Pointer, round: int) -> ArtifactKey:
        """Return the key of the policy after a round (1, 2, ...) of supervised fine-tuning."""
        inputs = {"model": model.digest, "demonstrations": demonstrations.digest}
        reads = ("warm_start", "adapter", "dtype", "seed")
        # prefix sharing changes the last bits of gradients, so the key covers this setting
        target = self._shared("warm_start", reads, inputs, self.settings.update.share_prefixes)
        return ArtifactKey(
            f"{target.uri}/{round:03d}/policy", "warm_start", digest([target.key, round]), inputs
        )

    def rollout(
        self,
        run: str,
        policy: Pointer,
        data: Pointer,
        step: int,
        shard: int,
        drawn: Sequence[int | str],
        frozen: Mapping[str, str],
        memory: Pointer | None = None,
    ) -> ArtifactKey:
        """Return the key of one shard (batch) of the episodes of a step.

        `drawn` identifies the problems of the sampling round (see `SamplingRound.drawn`). `frozen`
        maps each untrained role (kind of speaker) to a digest or to SELF (see `Experiment.frozen`).
        `memory` is the memory (a folder of files) that the episodes read.
        """
        inputs = {"policy": policy.digest, "data": data.digest, **_players(frozen, memory)}
        reads = (*PLAY, "rewards", "rollout", "night", "code.rollout")
        key = self._key("rollout", reads, inputs, step, shard, *drawn)
        return ArtifactKey(RunLayout(run).step(step).rollout(shard), "rollout", key, inputs)

    def evaluation(
        self,
        policy: Pointer,
        data: Pointer,
        split: str,
        shard: int,
        frozen: Mapping[str, str],
        memory: Pointer | None = None,
    ) -> ArtifactKey:
        """Return the key of one shard (batch) of a policy's held-out episodes.

        All runs of a store share these episodes. `frozen` maps each untrained role (kind of
        speaker) to a digest or to SELF (see `Experiment.frozen`). `memory` is the memory (a folder
        of files) that the episodes read.
        """
        inputs = {"policy": policy.digest, "data": data.digest, **_players(frozen, memory)}
        reads = (*PLAY, "rewards", "evaluate", "dtype", "code.rollout")
        # the shard size is an input, because other episodes in a batch change the last bits of
        # replies
        stages, size = StageKeys(self.settings.of_data), self.settings.rollout.shard
        target = stages._shared("evaluate", reads, inputs, size)
        uri, key = shard_uri(f"{target.uri}/{split}", shard), digest([target.key, split, shard])
        return ArtifactKey(uri, "evaluate", key, inputs)

    def scored(self, rollouts: Sequence[Pointer], round: int = 0) -> ArtifactKey:
        """Return the key of the scores of `rollouts`, the episodes of a step or an evaluation.

        The scores are stored in the folder of the rollouts. `round` is 0 for the final scores. With
        `rollout.refills`, a step may need several sampling rounds (1, 2, ...). After sampling round
        n, scores with `round` n decide whether another sampling round is needed.
        """
        inputs = {rollout.uri.rpartition("/")[2]: rollout.digest for rollout in rollouts}
        reads = ("rewards", "tasks", "code.score")
        key = self._key("score", reads, inputs, *([round] if round else []))
        folder = rollouts[0].uri.rpartition("/")[0]
        name = f"scored-{round}" if round else "scored"
        if folder.startswith(f"{SHARED}/"):
            # runs share the folder, and other weights or other code give other scores
            name = f"scored-{key[:16]}"
        return ArtifactKey(f"{folder}/{name}", "score", key, inputs)

    def memory(self, run: str, before: Pointer | None, scored: Pointer, step: int) -> ArtifactKey:
        """Return the key of the memory (a folder of files for agents) after a step (1, 2, ...).

        `before` is the memory before this step.
        """
        inputs = {"scored": scored.digest, **_remembered(before)}
        reads = ("agent.remembers", "seed", "night", "code.memory")
        key = self._key("score", reads, inputs, MEMORY, step)
        return ArtifactKey(RunLayout(run).step(step).memory, MEMORY, key, inputs)

    def policy(
        self,
        run: str,
        policy: Pointer,
        scored: Pointer,
        step: int,
        reference: Pointer | None = None,
        memory: Pointer | None = None,
    ) -> ArtifactKey:
        """Return the key of the policy that the step `step` (1, 2, ...) publishes.

        `reference` is the reference policy of the KL penalty. `memory` is the memory after this
        step (a folder of files that agents read).
        """
        inputs = {"policy": policy.digest, "scored": scored.digest, **_remembered(memory)}
        inputs |= {"reference": reference.digest} if reference else {}
        # a fork with a new optimizer computes other weights from the same inputs
        is_fresh = self.settings.fork and self.settings.fork.optimizer_state == "fresh"
        # the key covers the step's number, because the learning rate may depend on it
        key = self._key("update", UPDATE, inputs, step, *(["fresh"] if is_fresh else []))
        return ArtifactKey(RunLayout(run).step(step).policy, "update", key, inputs)

    def _shared(
        self, stage: str, reads: Sequence[str], inputs: Mapping[str, str], *place: int | str
    ) -> ArtifactKey:
        key = self._key(stage, reads, inputs, *place)
        return ArtifactKey(f"{SHARED}/{stage}/{key[:16]}", stage, key, inputs)

    def _key(
        self, stage: str, reads: Sequence[str], inputs: Mapping[str, str], *place: int | str
    ) -> str:
        settings = _settings(stage, self.settings.model_dump(mode="json"), reads)
        return digest([stage, VERSIONS[stage], settings, dict(inputs), list(place)])


def endpoint(name: str, settings: Endpoint, tokenizer: str) -> ArtifactKey:
    """Return the store key of a chat service (a model API) that is used as a policy.

    `name` is the name of the service in the site's settings. `tokenizer` is the digest of the
    tokenizer that counts the tokens of the service's replies.
    """
    # 1 is the version of this stage; the other stages have their versions in VERSIONS
    inputs = {"tokenizer": tokenizer}
    key = digest(["endpoint", 1, name, _identity(settings), dict(inputs)])
    return ArtifactKey(f"artifacts/endpoint/{key[:16]}", "endpoint", key, inputs)


def chat_service(settings: Endpoint) -> str:
    """Return the digest of the settings that determine the answers of a model API."""
    return digest(["chat_service", 1, _identity(settings)])


def learner(policy: ArtifactKey) -> ArtifactKey:
    """Return the key of the learner state (optimizer state) that belongs to a policy.

    The learner state is published in the same step as the policy.
    """
    # the update that makes the policy also makes its state, from the same inputs
    folder, key = policy.uri.rpartition("/")[0], digest([policy.key, "learner"])
    return ArtifactKey(f"{folder}/learner", policy.stage, key, policy.inputs)


def ledger(run: str, policy: Pointer) -> ArtifactKey:
    """Return the key of a run's ledger, the table of problems and outcomes of all steps.

    `policy` is the final policy of the run.
    """
    inputs = {"policy": policy.digest}
    return ArtifactKey(RunLayout(run).ledger, "ledger", digest(["ledger", inputs]), inputs)


def _texts(key: str, value: object) -> Iterator[tuple[str, str]]:
    """Yield each text in the value of a setting as (key, text): `("files/0", "train.jsonl")`."""
    if isinstance(value, str | Path):
        yield key, str(value)
    elif isinstance(value, list | tuple):
        for number, one in enumerate(value):
            yield from _texts(f"{key}/{number}", one)


def _takes_paths(kind: object) -> bool:
    """Whether a type is or contains Path: `Path | None`, `list[Path]`."""
    return kind is Path or any(map(_takes_paths, get_args(kind)))


def _players(frozen: Mapping[str, str], memory: Pointer | None) -> dict[str, str]:
    """Return the digests of untrained speakers and of the memory (a folder of files), as inputs of
    episodes: `{"speaker/critic": "9f2c...", "memory": "77b0..."}`.
    """
    return {**{f"speaker/{role}": who for role, who in frozen.items()}, **_remembered(memory)}


def _remembered(memory: Pointer | None) -> dict[str, str]:
    """Return the memory's digest as an input of an artifact: `{"memory": "77b0..."}`."""
    return {MEMORY: memory.digest} if memory else {}


def _identity(settings: Endpoint) -> JSON:
    # the API key, limits and timeouts are left out, because they do not change an answer
    return {"url": settings.url, "model": settings.model, "extra": settings.extra}


def _settings(stage: str, identity: Mapping[str, JSON], reads: Sequence[str]) -> dict[str, JSON]:
    """Return the settings that a stage reads.

    Settings that may change when a run is continued are removed. The weights of rewards are removed
    for all stages except `score`, because only scores depend on the weights.
    """
    values = {name: at_keys(identity, name.split(".")) for name in reads}
    settings: dict[str, JSON] = {k: v for k, v in values.items() if v is not None}
    unread = [*resumable(Settings), *(FINE_TUNING if stage == "demonstrate" else ())]
    for section, _, key in (name.partition(".") for name in unread):
        if isinstance(part := settings.get(section), dict):
            part.pop(key, None)
    sections: list[dict[str, JSON]] = [settings]
    if isinstance(tasks := settings.get("tasks"), Mapping):
        for task in tasks.values():
            assert isinstance(task, dict)
            task.pop("data", None)  # the dataset's digest is in the key instead
            if "rewards" not in reads:
                task.pop("rewards", None)
                task.pop("goal", None)
            sections.append(task)
    if stage != "score":
        for each in sections:
            _remove_weights(each)
    return settings


def _remove_weights(section: dict[str, JSON]) -> None:
    """Remove the weights of the rewards from a section of the settings."""
    if isinstance(rewards := section.get("rewards"), dict):
        for name, reward in rewards.items():
            settings = reward if isinstance(reward, dict) else {}
            rewards[name] = {key: value for key, value in settings.items() if key != "weight"}
