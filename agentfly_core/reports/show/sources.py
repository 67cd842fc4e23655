"""Read the episodes of training steps, evaluations, demonstrations and plays without training."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from agentfly_core.config.experiment import Settings
from agentfly_core.config.reference import NAME, LastPolicy, RunPolicy, policy_of_run
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.experiment.memory import memory_of
from agentfly_core.experiment.run_layout import PLAYS, PlayLayout, RunLayout, begun_shards
from agentfly_core.experiment.run_policies import policy_of
from agentfly_core.records.run_record import RunRecord
from agentfly_core.records.trajectory import Scored, Trajectory
from agentfly_core.runs.episodes import (
    Episodes,
    decoder,
    decoder_of,
    pieces,
    published_rollouts,
    read_pairs,
    read_step,
    scored_in,
    spans,
)
from agentfly_core.runs.listing import run_named
from agentfly_core.runs.metrics import solved_by_problem
from agentfly_core.runs.run import experiment_of_run, known_run, recorded_settings, stages_before
from agentfly_core.store.artifact import Pointer
from agentfly_core.store.store import Store
from agentfly_core.system.formats.checksummed_json import Damaged
from agentfly_core.system.formats.text import did_you_mean

HELD_OUT = ("test", "validation")
OF_PLAY = re.compile(rf"play:({NAME})")
ScoredEpisodes = Sequence[tuple[Trajectory, Scored]]
"""Trajectories with their scores."""


@dataclass(frozen=True, slots=True)
class PlayReference:
    """A reference to episodes that were played without training: `play:quickstart-1` is
    `PlayReference("quickstart-1")`.
    """

    name: str


EpisodeSource = RunPolicy | LastPolicy | PlayReference
"""A source of episodes: a step of a run (RunPolicy), a run without a named step (LastPolicy), or
episodes that were played without training (PlayReference).
"""


def reference(text: str) -> EpisodeSource:
    """Parse a reference to episodes: RUN, RUN@STEP or play:NAME.

    RUN and RUN@STEP may begin with `run:`. Raises ValueError for any other text.
    """
    if play := OF_PLAY.fullmatch(text):
        return PlayReference(play[1])
    if run := policy_of_run(text):
        return run
    raise ValueError(
        f"Got {text!r}, expected RUN, RUN@STEP (such as demo@7; 0 is the start) or play:NAME; "
        "`agentfly list` shows the runs."
    )


def against_of(text: str, shown: EpisodeSource, store: Store) -> EpisodeSource:
    """Parse the value of the option --against.

    The value is RUN@STEP or play:NAME. It may also be the number of another step of the run that
    `shown` names. Raises ValueError for any other text.
    """
    if text.isdecimal() and not isinstance(shown, PlayReference):
        return RunPolicy(shown.run, int(text))
    return reference(run_named(store, text))


def read(store: Store, named: EpisodeSource, evaluation: str, demonstrations: bool) -> Episodes:
    """Read the episodes that `named` refers to.

    For a step of a run, read the step's training episodes. If `evaluation` names held-out problems,
    read the step's evaluation on these problems instead. If `demonstrations` is True, read the
    demonstrations of the run's warm start instead. For a PlayReference, read episodes that were
    played without training. Raises ValueError if the episodes are missing, or if `evaluation` or
    `demonstrations` is set for a PlayReference.
    """
    if isinstance(named, PlayReference):
        if evaluation or demonstrations:
            raise ValueError(
                f"play:{named.name} has neither evaluations nor demonstrations. Remove "
                "--evaluation or --demonstrations."
            )
        return read_play(store, named.name)
    if demonstrations:
        return read_demonstrations(store, named.run)
    if evaluation:
        return read_evaluation(store, named.run, named.step, evaluation)
    if named.step == 0:
        raise ValueError(
            f"Step 0 of {named.run} is the state before training, so it has no rollouts. Use "
            "--evaluation test or --demonstrations."
        )
    return read_step(store, named.run, named.step)


def all_episodes(store: Store, text: str) -> list[Trajectory]:
    """Read the episodes that a reference names.

    RUN names the episodes of all steps of a run, and RUN@STEP the episodes of one step. play:NAME
    names episodes that were played without training. Raises ValueError if the named episodes are
    missing.
    """
    named = reference(text)
    steps: Sequence[EpisodeSource] = [named]
    if isinstance(named, LastPolicy):
        steps = [RunPolicy(named.run, step) for step in RunLayout(named.run).steps(store)]
    stored = [read(store, one, "", False) for one in steps or [named]]
    return [trajectory for episodes in stored for trajectory, _ in episodes.pairs]


def held_out(store: Store, record: RunRecord, name: str) -> tuple[Settings, Pointer, str]:
    """Return the settings, the dataset and the split of the held-out problems `name` of a run.

    `name` is `test`, `validation`, or the name of a dataset in the setting evaluate.datasets.
    Raises ValueError for any other name. The pointer to the dataset is empty until the run has read
    the dataset.
    """
    settings = recorded_settings(record)
    further = settings.evaluate.datasets
    if name not in (*HELD_OUT, *further):
        names = ", ".join([*HELD_OUT, *further])
        raise ValueError(
            f"The run {record['name']!r} has no held-out problems with the name {name!r}, expected "
            f"one of {names}."
        )
    if name in further:
        there = settings.on(further[name])
        return there, store.get(StageKeys(there).prepare().uri) or Pointer("", ""), "test"
    data = Pointer(record.get("dataset_uri", ""), record.get("dataset_digest", ""))
    return settings, data, name


def read_evaluation(store: Store, run: str, step: int | None, split: str) -> Episodes:
    """Read the episodes in which a step's policy was evaluated on the held-out problems `split`.

    Step 0 is the policy before step 1. If `step` is None, read the run's last evaluation. Raises
    ValueError if the policy was not evaluated. The message lists the evaluated steps.
    """
    record = known_run(store, run)
    settings = recorded_settings(record)
    pairs_of = evaluations(store, record, run, split)
    # a fork also has the steps of the run that it continues
    begun = range(max([settings.start_step, *RunLayout(run).steps(store)]) + 1)
    steps = reversed(begun) if step is None else [step]
    latest = next(((step, pairs) for step in steps if (pairs := pairs_of(step))), None)
    if latest is None:
        evaluated = spans([step for step in begun if pairs_of(step)]) or "none"
        hint = "" if settings.evaluate.every else " Set evaluate.every to evaluate on validation."
        raise ValueError(
            f"The run {run!r} has no evaluation{'' if step is None else f' of step {step}'} on "
            f"{split!r} in {store.uri}. Evaluated steps: {evaluated}.{hint}"
        )
    number, pairs = latest
    return Episodes(
        f"run:{run}@{number}",
        f"{run}, evaluation of step {number} on {split}",
        tuple(pairs),
        partial(pieces, decode=decoder(store, run)),
    )


def evaluations(
    store: Store, record: RunRecord, run: str, split: str
) -> Callable[[int], ScoredEpisodes]:
    """Return a function that reads the evaluation episodes of a step's policy, with their scores.

    The function takes the number of the step. The policy of step 0 is the policy before step 1. The
    function returns an empty list if the policy was not evaluated on the held-out problems `split`.
    """
    settings, data, played = held_out(store, record, split)
    frozen = experiment_of_run(record, store).frozen if settings.agent.frozen else {}
    keys = StageKeys(settings)

    def pairs_of(step: int) -> ScoredEpisodes:
        try:
            policy = policy_of(store, run, step)
        # Damaged is also a ValueError
        except Damaged:
            raise
        except ValueError:  # the step does not exist yet
            return []
        memory = memory_of(store, policy) if settings.agent.remembers else None
        first = keys.evaluation(policy, data, played, 0, frozen, memory).uri
        shards = published_rollouts(store, first.rpartition("/")[0])
        stored = [store.artifact(uri) for uri in shards]
        scores = store.find(keys.scored(stored)) if stored else None
        return scored_in(store, scores) if scores else []

    return pairs_of


def solved_held_out(pairs: ScoredEpisodes, goal: str) -> dict[str, float]:
    """Return, for each held-out problem, the share of solved episodes: `{"add-41-58": 1.0}`.

    `goal` is the key of the reward that decides whether an episode is solved.
    """
    return solved_by_problem([one for one, _ in pairs], [scores for _, scores in pairs], goal)


def read_demonstrations(store: Store, run: str) -> Episodes:
    """Read the demonstrations of a run's warm start.

    Raises ValueError if the run lacks demonstrations.
    """
    known_run(store, run)
    if not (made := stages_before(store, run).get("warm_start")):
        raise ValueError(f"The run {run!r} has no finished warm start, so no demonstrations.")
    uri = made[0].uri
    title = f"{run}, demonstrations of the warm start"
    read = partial(pieces, decode=decoder(store, run))
    return Episodes(f"run:{run}@0", title, read_pairs(store, [uri], f"{uri}/scored"), read)


def read_play(store: Store, name: str) -> Episodes:
    """Read the episodes that were played without training under the name `name`.

    Raises ValueError if they are missing.
    """
    layout = PlayLayout(name)
    try:
        record = store.read_json(layout.record)
        held = [uri for uri in begun_shards(store, layout.uri) if store.get(uri)]
    except Damaged as damage:
        raise Damaged(f"{damage} Restore the file, or remove {store.uri}/{layout.uri}.") from None
    if record is None or not held:
        hint = did_you_mean(name, [other for other in store.names(PLAYS) if other != name])
        raise ValueError(f"{store.uri} has no played episodes with the name {name!r}.{hint}")
    read = partial(pieces, decode=decoder_of(store, store.artifact(layout.tokenizer)))
    title = f"play:{name}, {record['policy']} on {record['split']}"
    return Episodes(f"play:{name}", title, read_pairs(store, held, layout.scored), read)
