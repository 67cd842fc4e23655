"""A run continues from a step of another with its numbers, order, seeds and states."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agentfly_core.config.experiment import Fork, Settings
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.experiment.run_layout import RunLayout, done_by
from agentfly_core.experiment.run_policies import policy_of
from agentfly_core.pipeline.loop.forking import check_start, forked, require_origin
from agentfly_core.pipeline.loop.lookahead import PlayedStep, ahead
from agentfly_core.pipeline.retention import Kept, kept_for_others, retain
from agentfly_core.pipeline.stages.policy_update import (
    catch_up,
    fresh,
    label_of,
    require_learner_state,
    step_job,
)
from agentfly_core.pipeline.stages.rejection_sampling import scored_steps
from agentfly_core.runs.listing import Listed, listed
from agentfly_core.runs.run import Run, opened
from agentfly_core.store.artifact import Artifact, ArtifactKey, Pointer
from agentfly_core.store.store import Store
from agentfly_core.training.checkpointing import AsyncCheckpointer
from tests.support.experiments import SUMMARY, experiment
from tests.support.forked_runs import fork_of, publish, scored, step


@pytest.fixture
def origin(tmp_path: Path) -> Experiment:
    """An experiment and its run `old`, which has finished three of four steps."""
    place = experiment(tmp_path, steps=4)
    with opened(place, "old") as run:
        model = ArtifactKey("artifacts/model/tiny", "model", "0", {})
        run.remember_start(publish(run.store, model))
        for number in (1, 2, 3):
            step(run, number)
    return place


@pytest.fixture
def run(origin: Experiment) -> Iterator[Run]:
    """The run `new`, a fork of old@2 before its first step."""
    with opened(fork_of(origin), "new") as run:
        assert run.parent is not None
        run.remember_start(run.parent.policy)
        yield run


def test_a_fork_continues_the_step_numbers(run: Run) -> None:
    assert (run.settings.start_step, [*run.settings.own_steps]) == (2, [3, 4])
    assert run.record["parent"] == {
        "run": "old",
        "uri": "runs/old/steps/000002/policy",
        "digest": policy_of(run.store, "old", 2).digest,
    }


def test_an_experiment_without_a_fork_starts_at_step_0(tmp_path: Path) -> None:
    settings = experiment(tmp_path).settings
    assert (settings.start_step, [*settings.own_steps]) == (0, [1, 2])


def test_a_fork_must_do_a_step(tmp_path: Path) -> None:
    message = r"steps: got 3, but the fork continues after step 3"
    with pytest.raises(ValueError, match=message):
        experiment(tmp_path, steps=3, fork={"run": "old", "step": 3})


def test_a_fork_with_equal_settings_has_bit_equal_steps(run: Run) -> None:
    assert step(run, 3) == Pointer(
        "runs/new/steps/000003/policy", policy_of(run.store, "old", 3).digest
    )


def test_earlier_steps_of_a_fork_are_those_of_its_origin(run: Run) -> None:
    step(run, 3)
    uris = [policy_of(run.store, "new", number).uri for number in (0, 1, 2, 3)]
    assert uris == [
        "artifacts/model/tiny",
        "runs/old/steps/000001/policy",
        "runs/old/steps/000002/policy",
        "runs/new/steps/000003/policy",
    ]
    assert [scores.uri.split("/")[1] for scores in scored_steps(run.store, "new", 3)] == [
        "old",
        "old",
        "new",
    ]


def test_a_fork_of_a_fork_continues_both(run: Run, origin: Experiment) -> None:
    step(run, 3)
    with opened(fork_of(origin, "new", 3), "newest") as newest:
        assert [done_by(newest.store, "newest", number) for number in (0, 2, 3, 4)] == [
            "old",
            "old",
            "new",
            "newest",
        ]


def test_a_fork_continues_after_the_problems_of_its_origin(run: Run) -> None:
    assert run.problems_before(3) == {"single": 3 + 1}
    scored(run, 3)
    assert run.problems_before(4) == {"single": 3 + 1 + 2}


def test_a_fork_reads_the_dataset_of_its_origin(origin: Experiment) -> None:
    theirs, changed = Pointer("artifacts/prepare/1", "9f2c"), Pointer("artifacts/prepare/2", "77")
    with opened(origin, "old") as old:
        old.remember_data(theirs, "none")
    with opened(fork_of(origin), "new") as run:
        with pytest.raises(ValueError, match=r"'new' .*the dataset 9f2c, but"):
            run.remember_data(changed, "none")
        run.remember_data(theirs, "none")


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"seed": 1}, "  seed: 0 -> 1"),
        ({"data": {"use": "tests.support.problems:clean", "train": 16, "test": 4}}, "  data.train"),
        ({"rollout": {"problems": 4}}, "  rollout.problems: "),
        ({"rollout": {"refills": 1}}, "  rollout.refills: 0 -> 1"),
    ],
)
def test_a_fork_with_another_order_of_problems_is_refused(
    origin: Experiment, changed: dict[str, Any], expected: str
) -> None:
    with pytest.raises(ValueError, match="change the order:") as refusal:
        with opened(fork_of(origin, **changed), "new") as run:
            check_start(run)
    assert expected in str(refusal.value)
    assert "from the policy of step 2: model=run:old@2." in str(refusal.value)
    assert origin.store.names("runs") == ["old"]


def keeping_one(run: Run) -> Any:
    """A run that keeps one learner state and the weights of one policy."""
    update = run.settings.update.model_copy(update={"keep_learner": 1, "keep_policies": 1})
    settings = run.settings.model_copy(update={"update": update})
    return replace(run, experiment=run.experiment.on(settings))


def kept_steps(store: Store, file: str) -> list[int]:
    paths = store.root.glob(f"runs/old/steps/*/{file}/model.safetensors")
    return sorted(int(path.parent.parent.name) for path in paths)


def test_an_active_run_keeps_states_that_its_forks_need(origin: Experiment) -> None:
    with opened(origin, "old") as old:
        step(old, 4)
        with opened(fork_of(origin, rollout={"max_staleness": 1}), "new") as new:
            check_start(new)
        retain(keeping_one(old), 4)
        assert (kept_steps(old.store, "learner"), kept_steps(old.store, "policy")) == (
            [2, 4],
            [1, 2, 4],
        )
        summary: Any = {**SUMMARY, "run": "new", "steps": 4}
        old.store.write_json("runs/new/summary.json", summary)
        retain(keeping_one(old), 4)
        assert (kept_steps(old.store, "learner"), kept_steps(old.store, "policy")) == (
            [4],
            [1, 2, 4],
        )


def test_an_active_run_keeps_policies_frozen_by_active_runs(origin: Experiment) -> None:
    with opened(origin, "old") as old:
        step(old, 4)
        for name, frozen in (("at-work", "run:old@1"), ("finished", "run:old@2")):
            made = experiment(origin.store.root.parent, agent={"frozen": {"critic": frozen}})
            with opened(origin.on(made.settings), name):
                pass
        summary: Any = {**SUMMARY, "run": "finished", "steps": 2}
        old.store.write_json("runs/finished/summary.json", summary)
        retain(keeping_one(old), 4)
        assert (kept_steps(old.store, "learner"), kept_steps(old.store, "policy")) == ([4], [1, 4])


def test_a_run_keeps_states_that_a_fork_of_its_fork_needs(run: Run) -> None:
    step(run, 3)
    newest = fork_of(run.experiment, "new", 1)
    with opened(newest, "newest"):
        assert kept_for_others(run.store, "old") == Kept({1, 2}, {1, 2})
        assert kept_for_others(run.store, "new") == Kept(set(), set())


def test_a_fork_without_its_learner_state_plays_nothing(origin: Experiment) -> None:
    origin.store.remove("runs/old/steps/000002/learner")
    with pytest.raises(ValueError, match=r"learner state of old@2"):
        with opened(fork_of(origin), "new") as run:
            check_start(run)
    assert origin.store.names("runs") == ["old"]


PPO = "agentfly_core.algorithms.ppo:PPO"
ADAPTIVE = {"use": "adaptive", "weight": 0.1}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ({}, {"adapter": {"rank": 4}}, r"adapter: got Adapter\(rank=4, .*, expected null"),
        ({}, {"algorithm": {"use": PPO}}, r"got the critic head, expected none"),
        (
            {"algorithm": {"use": PPO, "kl": ADAPTIVE}},
            {"algorithm": {"use": PPO, "kl": ADAPTIVE | {"weight": 0.2}}},
            r"algorithm\.kl\.weight: got 0\.2, expected 0\.1, because",
        ),
    ],
)
def test_a_fork_that_does_not_fit_the_learner_state_is_refused(
    tmp_path: Path, old: dict[str, Any], new: dict[str, Any], message: str
) -> None:
    place = experiment(tmp_path, steps=4, **old)
    with opened(place, "old") as run:
        run.remember_start(publish(run.store, ArtifactKey("artifacts/model/a", "model", "0", {})))
        for number in (1, 2):
            step(run, number)
    fork = {"run": "old", "step": 2}
    with pytest.raises(ValueError, match=message):
        with opened(fork_of(place, **new), "new") as run:
            check_start(run)
    with opened(fork_of(place, **new, fork={**fork, "optimizer_state": "fresh"}), "new") as run:
        check_start(run)


def test_a_fork_of_a_run_without_a_record_is_refused(origin: Experiment) -> None:
    origin.store.remove("runs/old/run.json")
    with pytest.raises(ValueError, match=r"The run\.json .*'old' is missing"):
        require_origin(origin.store, origin.settings, Fork(run="old", step=2))


def test_a_started_fork_needs_no_policies_of_its_origin(origin: Experiment) -> None:
    with opened(fork_of(origin, rollout={"max_staleness": 1}), "new") as run:
        run.remember_start(policy_of(run.store, "old", 2))
        step(run, 3)
    for number in (1, 2):
        origin.store.strip(f"runs/old/steps/{number:06d}/policy", "*.safetensors")
        origin.store.remove(f"runs/old/steps/{number:06d}/learner")
    played: list[int] = []

    def play(policy: Artifact, version: int, number: int) -> PlayedStep:
        played.append(number)
        return [], policy

    with opened(fork_of(origin, rollout={"max_staleness": 1}), "new") as run:
        check_start(run)
        with ahead(run, play) as played_by:
            for number in (3, 4):
                played_by(number, policy_of(run.store, "new", number - 1))
    assert played == [3, 4]


def test_a_fork_keeps_the_reference_policy_of_the_first_run(origin: Experiment) -> None:
    near = {"use": "agentfly_core.algorithms.grpo:GRPO", "kl": {"use": "loss", "weight": 0.1}}
    with opened(fork_of(origin, algorithm=near), "new") as run:
        run.remember_start(policy_of(run.store, "old", 2))
        assert str(job_of(run, 3).reference).endswith("artifacts/model/tiny")


def test_a_started_fork_is_listed_at_its_origins_step(run: Run) -> None:
    entries = {one.name: one for one in listed(run.store) if isinstance(one, Listed)}
    assert (entries["new"].step, entries["new"].steps) == (2, 4)
    step(run, 3)
    (again,) = [one for one in listed(run.store) if one.name == "new"]
    assert isinstance(again, Listed)
    assert again.step == 3


def job_of(run: Run, number: int) -> Any:
    before = run.store.resolve(policy_of(run.store, run.name, number - 1))
    done = scored(run, number)
    target = StageKeys(run.settings).policy(run.name, before, done, number)
    return step_job(run, before, done, target, number)


def test_the_first_update_of_a_fork_continues_the_learner_state(
    run: Run, origin: Experiment
) -> None:
    job = job_of(run, 3)
    assert job.start == run.store.artifact("runs/old/steps/000002/policy").key.key
    assert str(job.learner).endswith("runs/old/steps/000002/learner")
    with opened(origin, "old") as old:
        assert job_of(old, 3).seed == job.seed


def test_a_fork_may_start_with_a_fresh_optimizer(origin: Experiment) -> None:
    fork = {"run": "old", "step": 2, "optimizer_state": "fresh"}
    with opened(fork_of(origin, fork=fork), "new") as run:
        run.remember_start(policy_of(run.store, "old", 2))
        job = job_of(run, 3)
        assert (job.learner, job.start) == (None, fresh(run.start))
        assert step(run, 3).digest != policy_of(run.store, "old", 3).digest


def test_a_step_without_its_learner_state_is_refused(run: Run) -> None:
    run.store.remove("runs/old/steps/000002/learner")
    message = (
        r"The learner state of old@2 is not kept\. .*fork\.optimizer_state=fresh.* with a "
        r"learner state: 1, 3\."
    )
    with pytest.raises(ValueError, match=message):
        require_learner_state(run.store, Fork(run="old", step=2))
    with pytest.raises(ValueError, match=message):
        label_of(run, 2)


class Scripted:
    """A learner that records the label of its state and its jobs."""

    def __init__(self) -> None:
        self.jobs: list[Any] = []

    def label(self) -> str:
        return self.jobs[-1].end if self.jobs else ""

    def update(self, job: Any, watch: object) -> None:
        self.jobs.append(job)


def test_a_killed_fork_repeats_only_its_own_updates(run: Run) -> None:
    step(run, 3)
    run.store.remove("runs/new/steps/000003/learner")
    learner = Scripted()
    catch_up(run, AsyncCheckpointer(learner), 4)  # type: ignore[arg-type]
    assert [job.start for job in learner.jobs] == [
        run.store.artifact("runs/old/steps/000002/policy").key.key
    ]


def test_a_fork_removes_only_its_own_files(run: Run) -> None:
    for number in (3, 4):
        step(run, number)
    settings = run.settings.model_copy(
        update={"update": run.settings.update.model_copy(update={"keep_learner": 1})}
    )
    here = SimpleNamespace(name="new", settings=settings, store=run.store, layout=run.layout)
    retain(here, 4)  # type: ignore[arg-type]
    kept = [run.store.holds(f"runs/{name}/learner") for name in ("old/steps/000001",)]
    assert kept == [True]
    assert not run.store.holds("runs/new/steps/000003/learner")


def test_a_fork_first_samples_from_policies_of_its_origin(origin: Experiment) -> None:
    sampled: list[tuple[int, int, str]] = []

    def play(policy: Artifact, version: int, number: int) -> PlayedStep:
        sampled.append((number, version, policy.uri))
        return [], policy

    settings = {"rollout": {"max_staleness": 1}}
    with opened(fork_of(origin, **settings), "new") as run, ahead(run, play) as played_by:
        for number in (3, 4):
            played_by(number, policy_of(run.store, "old", number - 1))
    assert sampled == [
        (3, 1, "runs/old/steps/000001/policy"),
        (4, 2, "runs/old/steps/000002/policy"),
    ]


@pytest.mark.parametrize("override", ["model=nano:letters", "fork.step=1", "warm_start=null"])
def test_inherited_settings_of_a_fork_cannot_change(origin: Experiment, override: str) -> None:
    with pytest.raises(ValueError, match=rf"Got '{override}', .* from old@2"):
        forked(Fork(run="old", step=2), [override])


def test_a_step_without_a_policy_is_refused(origin: Experiment) -> None:
    message = (
        r"The run 'old' has no policy of step 9 .* last policy is runs/old/steps/000003/policy"
    )
    with pytest.raises(ValueError, match=message):
        require_origin(origin.store, origin.settings, Fork(run="old", step=9))


def test_a_fork_can_be_loaded_from_its_record(run: Run) -> None:
    settings = Settings.model_validate(run.record["settings"])
    assert settings.fork == Fork(run="old", step=2)
    assert RunLayout("new").steps(run.store) == []
