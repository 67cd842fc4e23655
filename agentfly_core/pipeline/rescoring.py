"""Score stored episodes with rewards that the experiment does not have."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from pydantic import ValidationError

from agentfly_core.authoring.reward import Reward
from agentfly_core.authoring.scoring import score_here
from agentfly_core.config.credentials import refuse_secrets
from agentfly_core.config.experiment import Settings
from agentfly_core.config.parts import PROGRAM, RewardPart
from agentfly_core.experiment.keys import VERSIONS
from agentfly_core.experiment.own_modules import sources
from agentfly_core.experiment.run_layout import PLAYS, PlayLayout, RunLayout, rollouts
from agentfly_core.experiment.task import reward_of as reward_at
from agentfly_core.pipeline.produce import find, publish
from agentfly_core.records.parquet import SCORES, read_scores, write_scores
from agentfly_core.records.run_record import PlayRecord
from agentfly_core.records.trajectory import Ending, Scored, Trajectory, Unscored
from agentfly_core.runs.episodes import scored_in, spans
from agentfly_core.runs.run import known_run, recorded_settings
from agentfly_core.store.artifact import Artifact, ArtifactKey
from agentfly_core.store.store import Store
from agentfly_core.system.formats import strict_yaml
from agentfly_core.system.formats.hashing import digest
from agentfly_core.system.formats.json_value import JSON
from agentfly_core.system.formats.text import did_you_mean


@dataclass(frozen=True)
class NewReward:
    """A reward with its weight and settings.

    Example: `NewReward("my_rewards:brief", RewardPart(weight=0.5), brief)`.
    """

    path: str
    part: RewardPart
    reward: Reward

    @property
    def identity(self) -> list[JSON]:
        """The values that identify this reward in the store key of the new scores.

        They are the reward's path, its weight and settings, the version of the stage `score`, and
        the digests of the reward's source files.
        """
        files: JSON = {**sources(self.path.partition(":")[0])}
        return [self.path, self.part.model_dump(mode="json"), VERSIONS["score"], files]


@dataclass(frozen=True, slots=True)
class RescoredStep:
    """The episodes of a training step with their old and new scores.

    `step` is 0 for episodes that do not belong to a training run (`play:NAME`). `artifact` contains
    the new scores, or is None if an episode lacks a new score. Episodes that ended FAILED never get
    a score, but they do not set `artifact` to None. `episodes` contains them, too.

        RescoredStep(
            7, Artifact("runs/demo/rescored/9f2c.../000007", "77b0..."),
            ((trajectory, old, new), ...),
        )
    """

    step: int
    artifact: Artifact | None
    episodes: tuple[tuple[Trajectory, Scored, Scored], ...]


def new_rewards(texts: Sequence[str]) -> list[NewReward]:
    """Parse several rewards; see `new_reward`. Raises ValueError if a reward is given twice."""
    paths = [text.partition("=")[0] for text in texts]
    if twice := [path for path in paths if paths.count(path) > 1]:
        raise ValueError(f"--reward {twice[0]} is given twice; give it once, with one weight.")
    return [new_reward(text) for text in texts]


def new_reward(text: str) -> NewReward:
    """Parse a value of the option `--reward`: the reward's import path, and a weight or settings.

    - `my_rewards:brief`: a reward with the weight 1
    - `my_rewards:brief=0.5`: a reward with another weight
    - `my_rewards:cites={weight: 0.5, least: 2}`: a reward with settings

    Raises ValueError if the import path does not lead to a reward, if the text contains a secret,
    or if the reward needs an environment.
    """
    path, equals, value = text.partition("=")
    given = strict_yaml.parse(value, f"--reward {path}") if equals else 1.0
    refuse_secrets({path: given}, "--reward")
    try:
        part = RewardPart.model_validate(given)
    except ValidationError:
        raise ValueError(
            f"--reward {path}: got {value!r}, expected the reward's weight, such as 0.5, or "
            "settings, such as {weight: 0.5, timeout: 60}."
        ) from None
    reward = reward_at(path, part)
    if reward.needs:
        kinds = ", ".join(kind.__name__ for kind in reward.needs.values())
        raise ValueError(
            f"The reward {path} needs {kinds}, but environments are closed at the end of an "
            "episode. So stored episodes cannot be scored. Play new episodes with this reward: use "
            "`agentfly play`, or train another run."
        )
    reward.ready()
    return NewReward(path, part, reward)


def rescored(
    store: Store, run: str, step: int | None, rewards: Sequence[NewReward]
) -> Iterator[RescoredStep]:
    """Score the stored episodes of a step with new rewards. If `step` is None, score all steps.

    If an earlier call has stored the new scores of a step, they are read from the store. Otherwise
    the scores are computed, and stored if all episodes that did not fail have a score. Raises
    ValueError if the step lacks scores of the run's own rewards, and FileNotFoundError if the
    episodes of a step were removed.
    """
    agent = recorded_settings(known_run(store, run)).agent.use
    layout = RunLayout(run)
    done = [number for number in layout.steps(store) if store.holds(layout.step(number).scored)]
    if not done or (step is not None and step not in done):
        which = f"steps {spans(done)}" if done else "none"
        what = f"step {step} of {run!r}" if step is not None else f"the run {run!r}"
        raise ValueError(f"{store.uri} has no scores of {what}. Scored steps: {which}.")
    where = _folder(layout.uri, rewards)
    for number in done if step is None else [step]:
        scored = store.artifact(layout.step(number).scored)
        yield _rescored(store, scored, number, rewards, f"{where}/{number:06d}", agent)


def rescored_play(store: Store, name: str, rewards: Sequence[NewReward]) -> RescoredStep:
    """Score the episodes in `plays/NAME` with new rewards.

    If an earlier call has stored the new scores, they are read from the store.
    Raises ValueError if the episodes lack scores of the experiment's own rewards.
    """
    layout = PlayLayout(name)
    record: PlayRecord | None = store.read_json(layout.record)
    if record is None or not store.holds(layout.scored):
        hint = did_you_mean(name, [one for one in store.names(PLAYS) if one != name])
        raise ValueError(f"{store.uri} has no scored episodes with the name play:{name}.{hint}")
    agent = Settings.model_validate(record["settings"]).agent.use
    where = _folder(layout.uri, rewards)
    return _rescored(store, store.artifact(layout.scored), 0, rewards, where, agent)


def _identity(rewards: Sequence[NewReward]) -> str:
    # sorted, because scores do not depend on the order of the options
    return digest(sorted((each.identity for each in rewards), key=str))


def _folder(uri: str, rewards: Sequence[NewReward]) -> str:
    return f"{uri}/rescored/{_identity(rewards)[:16]}"


def _rescored(
    store: Store, scored: Artifact, step: int, rewards: Sequence[NewReward], where: str, agent: str
) -> RescoredStep:
    shards = rollouts(scored)
    pairs = scored_in(store, scored)
    played = [t for t, _ in pairs]
    inputs = {shard.uri.rpartition("/")[2]: shard.digest for shard in shards}
    target = ArtifactKey(where, "rescore", digest([_identity(rewards), inputs]), inputs)
    artifact: Artifact | None = find(store, target)
    if artifact:
        new = read_scores(store.open(artifact) / SCORES)
    else:
        named = "program" if agent == PROGRAM else agent.rpartition(":")[2]
        # if the agent is a class, its main speaker has the class name in lower case
        main = named if any(one.agent == named for one in played) else named.lower()
        weights = {each.reward: each.part.weight for each in rewards}
        # without the scores that an earlier reward of the same name computed during the episode
        unobserved = [replace(t, observed={}) for t in played]
        new = score_here(unobserved, weights, main)
        ended = {t.id for t in played if t.ending is not Ending.FAILED}
        # Not published while scores are missing: a service may be down now, and the same command
        # can be repeated later. Failed episodes never get a score.
        if not any(isinstance(s.reward, Unscored) and s.trajectory_id in ended for s in new):
            artifact = publish(store, target, partial(_write, new))
    by_id = {one.trajectory_id: one for one in new}
    return RescoredStep(step, artifact, tuple((t, old, by_id[t.id]) for t, old in pairs))


def _write(scores: Sequence[Scored], folder: Path) -> Mapping[str, float]:
    write_scores(folder / SCORES, scores)
    return {}
