"""Episodes that are no training step's: evaluations, demonstrations of a warm start, plays."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from agentfly_core.config.experiment import Settings
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.experiment.play_layout import PlayLayout, plays
from agentfly_core.experiment.run_layout import RunLayout, begun_shards, done_by
from agentfly_core.experiment.run_policies import policy_of
from agentfly_core.records.run_record import RunRecord
from agentfly_core.reports.show.reference import EpisodeSource, PlayReference
from agentfly_core.runs.episodes import (
    Episodes,
    Pair,
    decoder,
    decoder_of,
    pieces,
    published_rollouts,
    read_pairs,
    read_step,
    spans,
)
from agentfly_core.runs.metrics import solved_by_problem
from agentfly_core.runs.run import experiment_of_run, known_run, recorded_settings
from agentfly_core.store.store import Pointer, Store
from agentfly_core.system.formats.checksummed_json import Damaged
from agentfly_core.system.formats.text import did_you_mean

HELD_OUT = ("test", "validation")


def read(store: Store, named: EpisodeSource, evaluation: str, demonstrations: bool) -> Episodes:
    """The episodes of a step or a play, or of a run's evaluation on a split or its demonstrations;
    raises ValueError where there are none.
    """
    if isinstance(named, PlayReference):
        if evaluation or demonstrations:
            raise ValueError(f"play:{named.name} has neither evaluations nor demonstrations.")
        return read_play(store, named.name)
    if demonstrations:
        return read_demonstrations(store, named.run)
    if evaluation:
        return read_evaluation(store, named.run, named.step, evaluation)
    if named.step == 0:
        raise ValueError(
            f"Step 0 of {named.run} is its start, which plays no step; see what it did on held-out "
            "problems with --evaluation test, or what it imitated with --demonstrations."
        )
    run = named.run if named.step is None else done_by(store, named.run, named.step)
    return read_step(store, run, named.step)


def held_out(store: Store, record: RunRecord, name: str) -> tuple[Settings, Pointer, str]:
    """The experiment, the dataset and the split of a run's held-out problems: of `test`,
    `validation`, or one of evaluate.datasets.

    The uri of a dataset that has changed since the run read it is empty, as is the digest of one
    that was never made. Raises ValueError for another name.
    """
    settings = recorded_settings(record)
    further = settings.evaluate.datasets
    if name not in (*HELD_OUT, *further):
        run, names = record["name"], ", ".join([*HELD_OUT, *further])
        raise ValueError(
            f"Got the held-out problems {name!r}, expected one of those of {run}: {names}."
        )
    there, split = (settings.on(further[name]), "test") if name in further else (settings, name)
    read = None if name in further else record.get("dataset_digest")
    stored = store.get(StageKeys(there).prepare().uri) or Pointer("", read or "")
    return there, stored if read in (None, stored.digest) else Pointer("", read), split


def read_evaluation(store: Store, run: str, step: int | None, split: str) -> Episodes:
    """What the policy of a run's step, 0 for the start, played on held-out problems, those of a
    split or of one of evaluate.datasets; without a step, that of the last step that was evaluated.

    Raises ValueError, with the steps that were, where it was not.
    """
    record = known_run(store, run)
    settings = recorded_settings(record)
    where = evaluations(store, record, run, split)
    # a fork has the steps behind it as well, from the policy that it starts from back to 0
    begun = range(max([settings.start_step, *RunLayout(run).steps(store)]) + 1)
    steps = reversed(begun) if step is None else [step]
    latest = next(((step, scored) for step in steps if (scored := where(step))), None)
    if latest is None:
        there = [step for step in begun if where(step)]
        which = "It has evaluated none yet."
        if there:
            which = f"There are those of {'steps' if there[1:] else 'step'} {spans(there)}."
        elif split == "validation" and not settings.evaluate.every:
            which = "It never evaluates on validation: set evaluate.every."
        of = f" of step {step}" if step is not None else ""
        raise ValueError(f"{run!r} has no evaluation{of} on {split!r} in {store.uri}. {which}")
    number, scored = latest
    return Episodes(
        f"run:{run}@{number}",
        f"{run}, evaluation of step {number} on {split}",
        evaluated_pairs(store, scored),
        partial(pieces, decode=decoder(store, run)),
        {},
    )


def evaluations(
    store: Store, record: RunRecord, run: str, split: str
) -> Callable[[int], str | None]:
    """Where the scores of what the policy of a run's step, 0 for the start, played on held-out
    problems lie, None where that is not stored, not scored, or last scored by another run's
    rewards. Of several codes that a run has worked under, the last with which that was played
    counts.
    """
    settings, data, played = held_out(store, record, split)
    frozen = experiment_of_run(record, store).frozen if settings.agent.frozen else {}
    before = [change["before"] for change in reversed(record.get("accepted_code", []))]
    newest_first = [settings, *(settings.model_copy(update={"code": code}) for code in before)]

    def scores_of(step: int) -> str | None:
        try:
            policy = policy_of(store, run, step)
        except Damaged:
            raise
        except ValueError:  # the step is not done yet, or there is none
            return None
        for one in newest_first:
            first = StageKeys(one).evaluation(policy, data, played, 0, frozen).uri
            shards = published_rollouts(store, first.rpartition("/")[0])
            stored = [store.artifact(uri) for uri in shards]
            if stored and (scores := store.find(StageKeys(one).scored(stored))):
                return scores.uri
        return None

    return scores_of


def evaluated_pairs(store: Store, scored: str) -> tuple[Pair, ...]:
    """The episodes of an evaluation, with their scores, which lie beside them."""
    return read_pairs(store, published_rollouts(store, scored.rpartition("/")[0]), scored)


def solved_held_out(store: Store, scored: str, goal: str) -> dict[str, float]:
    """The share of each problem's episodes that an evaluation solved: `{"add-41-58": 1.0}`."""
    pairs = evaluated_pairs(store, scored)
    given = [scores for _, scores in pairs if scores]
    return solved_by_problem([trajectory for trajectory, _ in pairs], given, goal)


def read_demonstrations(store: Store, run: str) -> Episodes:
    """What the warm start of a run imitated; raises ValueError for a run without one."""
    record = known_run(store, run)
    start = store.read_json(RunLayout(run).start)
    made = store.get(start["uri"]) if start else None
    wanted = made.manifest["inputs"].get("demonstrations") if made else None
    if wanted is None:
        began = record["parent"]
        why = f"it starts from {began['uri']}" if began else "it has no warm start, or none yet"
        raise ValueError(f"{run!r} has no demonstrations: {why}.")
    folders = [f"artifacts/demonstrate/{name}" for name in store.names("artifacts/demonstrate")]
    held = [uri for uri in folders if store.holds(uri)]
    uri = next((uri for uri in held if store.artifact(uri).digest == wanted), None)
    if uri is None:
        raise ValueError(f"The demonstrations of {run!r} are no longer in {store.uri}.")
    title = f"{run}, demonstrations of the warm start"
    read = partial(pieces, decode=decoder(store, run))
    return Episodes(f"run:{run}@0", title, read_pairs(store, [uri], f"{uri}/scored"), read, {})


def read_play(store: Store, name: str) -> Episodes:
    """Episodes that were played without training; raises ValueError where there are none."""
    layout = PlayLayout(name)
    try:
        record, shards = store.read_json(layout.record), begun_shards(store, layout.uri)
        # damage is no reason to show the other shards alone
        held = [uri for uri in shards if store.get(uri)]
        if record is None or not held:
            hint = did_you_mean(name, [other for other in plays(store) if other != name])
            raise ValueError(f"There are no played episodes {name!r} in {store.uri}.{hint}")
        read = partial(pieces, decode=decoder_of(store, store.artifact(layout.tokenizer)))
        title = f"play:{name}, {record['policy']} on {record['split']}"
        return Episodes(f"play:{name}", title, read_pairs(store, held, layout.scored), read, {})
    except Damaged as damage:
        raise Damaged(
            f"{damage} Nothing plays it again under its name: put the file back from a copy, or "
            f"remove {store.uri}/{layout.uri}."
        ) from None
