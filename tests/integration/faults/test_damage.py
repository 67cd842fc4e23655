"""Damage to any file of a run is reported; the run continues, or is refused with a remedy."""

import itertools
import logging
import random
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agentfly_core.config.loading import read
from agentfly_core.config.site import Site
from agentfly_core.experiment import keys
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.experiment.user_code import code_of
from agentfly_core.reports.show import printed as printing
from agentfly_core.reports.show.choice import by_episode
from agentfly_core.runs import episodes
from agentfly_core.runs.listing import listed, view
from agentfly_core.runs.run import links_of, opened
from agentfly_core.runs.summary import run_ledger, steps_frame
from agentfly_core.store.artifact import Artifact, ArtifactKey
from agentfly_core.store.store import Store
from tests.support.damage import check, damage, listen, printed, records, suffered
from tests.support.killed_commands import TINY, TRAIN, Lives, Whole, digests
from tests.support.problems import schedule_of

SEED = 15
STEPS = (1, 2, 3)
PARTS = ("artifacts", "runs")
LOCK = "lock.json"
"""The lock is the system's; what this file says is for people, and changes nothing."""


def needed(experiment: Experiment) -> Iterator[ArtifactKey]:
    """Keys of the artifacts of a run of tiny.yaml, in order; each key needs the artifacts before
    it.
    """
    settings, made = experiment.settings, lambda target: experiment.store.artifact(target.uri)

    def evaluation(policy: ArtifactKey) -> Iterator[ArtifactKey]:
        shards = [
            StageKeys(settings).evaluation(made(policy), made(data), "test", shard, {})
            for shard in (0, 1)
        ]
        yield from shards
        yield StageKeys(settings).scored([made(shard) for shard in shards])

    yield (data := StageKeys(settings).prepare())
    yield (model := StageKeys(settings).model())
    yield (demonstrations := StageKeys(settings).demonstrations(made(model), made(data), {}))
    for number in (1, 2):
        yield (policy := StageKeys(settings).warm_start(made(model), made(demonstrations), number))
        yield keys.learner(policy)
    yield from evaluation(policy)
    for step in STEPS:
        sampling_round = schedule_of(settings).first_round(
            step, settings.algorithm.make().needs.greedy_episode
        )
        drawn = sampling_round.drawn(schedule_of(settings))
        shards = [
            StageKeys(settings).rollout("demo", made(policy), made(data), step, shard, drawn, {})
            for shard in sampling_round.shards
        ]
        yield from shards
        yield (scored := StageKeys(settings).scored([made(shard) for shard in shards]))
        yield (policy := StageKeys(settings).policy("demo", made(policy), made(scored), step))
        yield keys.learner(policy)
    yield from evaluation(policy)
    yield keys.ledger("demo", made(policy))


def published(experiment: Experiment, places: list[ArtifactKey]) -> list[Artifact]:
    """Published artifacts there, up to the first that would be recomputed; until then the keys are
    the same.
    """
    return list(itertools.takewhile(bool, map(experiment.store.find, places)))


def checks_of_data(store: Store) -> list[Any]:
    """The stored reports on right and wrong answers."""
    folder = f"{keys.SHARED}/solvable"
    return [store.read_json(f"{folder}/{name}") for name in store.names(folder)]


def readers(experiment: Experiment, places: list[ArtifactKey]) -> dict[str, Callable[[int], Any]]:
    """Readers of a run without services, by name; each returns a comparable value for a step."""

    def continued(_: int) -> tuple[Any, ...]:
        with opened(experiment, "demo") as run:
            return (
                run.record,
                run.parent,
                run.start,
                run.finished,
                run_ledger(run.store, run.name, run.settings.own_steps).to_json(),
            )

    return {
        "list": lambda _: printed(view(listed(experiment.store), experiment.store)),
        "show": lambda step: printed(
            printing.show(
                stored := episodes.read_step(experiment.store, "demo", step),
                8,
                by_episode(stored.pairs)[:8],
            )
        ),
        "links": lambda _: links_of(experiment.store, "demo"),
        "steps": lambda _: steps_frame(
            experiment.store, "demo", experiment.settings.own_steps
        ).to_json(),
        "continue": continued,
        "keys": lambda _: published(experiment, places),
        "check of the data": lambda _: checks_of_data(experiment.store),
    }


@pytest.mark.parametrize("cases", [40, pytest.param(500, marks=pytest.mark.long)])
def test_damaged_files_are_named_and_ignored(
    whole: Whole,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    cases: int,
) -> None:
    monkeypatch.chdir(tmp_path)  # as in the run: sources are stored with their git state there
    caplog.set_level(logging.WARNING)
    for part in PARTS:
        shutil.copytree(whole.folder / part, tmp_path / part)
    file, store = read(TINY), Store.at(str(tmp_path), tmp_path / "cache")
    experiment = Experiment.of("tiny", file.settings, file.origin, Site(), store)
    code = code_of(experiment.settings, experiment.tasks)
    experiment = experiment.on(experiment.settings.with_code(code))
    with opened(experiment, "demo"):
        places = list(needed(experiment))
    by_name = readers(experiment, places)
    before = {
        (name, step): listen(partial(by_name[name], step), caplog).given
        for name in by_name
        for step in STEPS
    }
    assert len(before["keys", 1]) == len(places) == 29
    draw, paths = random.Random(SEED), records(tmp_path, *PARTS)
    for _ in range(cases):
        suffer = damage(draw, draw.choice(paths))
        step = next(
            (step for step in STEPS if f"/{step:06d}/" in str(suffer.path)), draw.choice(STEPS)
        )
        with suffered(suffer):
            heard = {
                name: listen(partial(reader, step), caplog) for name, reader in by_name.items()
            }
        for name, now in heard.items():
            check(suffer, now, before[name, step])
        noticed = any(str(suffer.path) in now.told for now in heard.values())
        assert noticed or suffer.path.name == LOCK, f"{suffer}: nobody noticed"


def sample(draw: random.Random, paths: list[Path]) -> list[Path]:
    """Twenty files: run.json, start.json, and 18 from one file of each other name and eight
    manifests and weights.
    """
    kinds: dict[str, list[Path]] = {}
    for path in paths:
        kinds.setdefault(path.name, []).append(path)
    one = [draw.choice(kinds.pop(name)) for name in ("run.json", "start.json")]
    rest = [draw.choice(same_name) for same_name in kinds.values()]
    more = [
        path
        for path in paths
        if path.name in ("MANIFEST.json", "model.safetensors", "learner.safetensors")
    ]
    return [*one, *draw.sample([*rest, *draw.sample(more, 8)], 18)]


@pytest.mark.long
@pytest.mark.parametrize("number", range(20))
def test_a_damaged_run_recovers_or_is_refused_with_a_remedy(
    at_step_2: Path, lives: Lives, whole: Whole, number: int
) -> None:
    path = sample(random.Random(SEED), records(at_step_2, *PARTS))[number]
    suffer = damage(random.Random(number), path)
    path.write_bytes(suffer.content)
    end = lives.run(at_step_2, *TRAIN)
    if path.name == "run.json":
        assert end.code == 2
        assert f"{path} is damaged" in end.printed
        path.unlink()
        end = lives.run(at_step_2, *TRAIN)
    assert end.code == 0, f"{suffer}: {end.printed}"
    expected = digests(whole.folder)
    if path.parent.name == "learner":  # a state that is not needed is not recomputed
        shutil.rmtree(path.parent)
        del expected[path.parent.relative_to(at_step_2).as_posix()]
    assert digests(at_step_2) == expected, str(suffer)
