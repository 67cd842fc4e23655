"""Files that an update keeps and removes."""

import ctypes
import mmap
import os
import shutil
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest

from agentfly_core.experiment import keys
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.pipeline.retention import require_space, retain
from agentfly_core.pipeline.stages.policy_update import (
    catch_up,
    label_of,
    publish,
    step_job,
    warm_start_job,
)
from agentfly_core.pipeline.stop_conditions import GateClosed
from agentfly_core.runs.run import opened
from agentfly_core.store import store as store_module
from agentfly_core.store.artifact import ArtifactKey
from agentfly_core.store.stage_metrics import measuring
from agentfly_core.training.checkpointing import AsyncCheckpointer
from tests.support.experiments import experiment
from tests.support.waiting import LIMIT


@pytest.fixture
def run(tmp_path):
    """A run of four steps with learner states; every second policy was evaluated."""
    settings = {"update": {"keep_learner": 1, "keep_policies": 1}, "evaluate": {"every": 2}}
    with opened(experiment(tmp_path, **settings), "demo") as run:
        for step in (1, 2, 3, 4):
            for name, file in (("learner", "learner.safetensors"), ("policy", "model.safetensors")):
                target = ArtifactKey(f"runs/demo/steps/{step:06d}/{name}", "update", str(step), {})
                with run.store.publish(target) as folder:
                    (folder / file).write_text(f"weights of step {step}")
                    (folder / "config.json").write_text("{}")
        yield run


def steps(run, file):
    return [
        int(path.parent.parent.name)
        for path in sorted(run.store.root.glob(f"runs/demo/steps/*/{file}"))
    ]


def test_old_learner_states_are_removed(run):
    retain(run, 4)
    assert steps(run, "learner/learner.safetensors") == [4]


def test_old_weights_are_removed_unless_evaluated(
    run,
):
    target = ArtifactKey("runs/demo/steps/000001/policy", "update", "1", {})
    digest = run.store.find(target).digest
    retain(run, 4)
    assert steps(run, "policy/model.safetensors") == [2, 4]
    assert steps(run, "policy/config.json") == [1, 2, 3, 4]
    policy = run.store.find(target)
    assert policy.digest == digest
    with pytest.raises(ValueError, match=r"steps/000001/policy .*lacks model\.safetensors"):
        run.store.open(policy)


def test_weights_are_kept_while_updates_may_repeat_from_them(run):
    run.store.remove("runs/demo/steps/000004/learner")
    run.store.remove("runs/demo/steps/000003/learner")
    retain(run, 4)
    assert steps(run, "learner/learner.safetensors") == [2]
    assert steps(run, "policy/model.safetensors") == [2, 3, 4]


def test_weights_are_kept_while_later_steps_sample_from_them(run):
    settings = run.settings.model_copy(
        update={"rollout": run.settings.rollout.model_copy(update={"max_staleness": 3})}
    )
    retain(replace(run, experiment=run.experiment.on(settings)), 4)
    assert steps(run, "policy/model.safetensors") == [1, 2, 3, 4]
    older = settings.model_copy(
        update={"rollout": run.settings.rollout.model_copy(update={"max_staleness": 1})}
    )
    retain(replace(run, experiment=run.experiment.on(older)), 4)
    assert steps(run, "policy/model.safetensors") == [2, 3, 4]


def test_a_damaged_newest_learner_state_removes_nothing(run):
    (run.store.root / "runs/demo/steps/000004/learner/learner.safetensors").write_text("weights of")
    store_module._opened.clear()  # as in another process
    retain(run, 4)
    assert (
        steps(run, "learner/learner.safetensors")
        == steps(run, "policy/model.safetensors")
        == [1, 2, 3, 4]
    )


def test_states_that_other_runs_start_from_are_kept(run, tmp_path):
    kl = {"use": "loss", "reference": "run:demo@1"}
    others = {
        "near": {"algorithm": {"use": "agentfly_core.algorithms.grpo:GRPO", "kl": kl}},
        "onward": {"model": "run:demo@3", "update": {"optimizer_state": "parent"}},
    }
    for name, settings in others.items():
        with opened(experiment(tmp_path, **settings), name):
            pass
    retain(run, 4)
    assert steps(run, "policy/model.safetensors") == [1, 2, 3, 4]
    assert steps(run, "learner/learner.safetensors") == [3, 4]


def test_a_run_of_another_version_does_not_stop_this_run(run, tmp_path, caplog):
    speaks = {"agent": {"frozen": {"critic": "run:demo@1"}}}
    with opened(experiment(tmp_path, **speaks), "other") as other:
        settings = {**other.record["settings"], "pruning": 2}
        other.store.write_json(other.layout.record, {**other.record, "settings": settings})
    retain(run, 4)
    assert steps(run, "policy/model.safetensors") == [2, 4]
    assert "runs/other/run.json: pruning: " in caplog.text


def test_a_state_before_its_policy_removes_nothing(run):
    run.store.remove("runs/demo/steps/000004/policy")
    retain(run, 4)
    assert steps(run, "learner/learner.safetensors") == [3, 4]
    assert steps(run, "policy/model.safetensors") == [2, 3]


def test_an_update_waits_for_a_state_that_is_being_written(
    tmp_path,
):
    class Died:
        """A learner that lost its state during the write of a copy; it accepts no update."""

        def label(self):
            return None

        def save_state(self, folder):
            waited.clear()
            return lambda: (
                (folder / "learner.json").write_text("{}") if waited.wait(LIMIT) else None
            )

    class Monitor(AsyncCheckpointer):
        def wait(self):
            waited.set()
            super().wait()

    waited = threading.Event()
    with opened(experiment(tmp_path), "demo") as run:
        run.remember_start(published(run.store, "artifacts/model"))
        scored = published(run.store, "runs/demo/steps/000001/scored")
        target = StageKeys(run.settings).policy("demo", run.start, scored, 1)
        with run.store.publish(target):
            pass
        checkpointer = Monitor(Died())
        checkpointer.begin(run.store.publish(keys.learner(target)), lambda: None)
        catch_up(run, checkpointer, 2)
        assert run.store.find(keys.learner(target))


def published(store, uri, files=()):
    with store.publish(ArtifactKey(uri, "test", "0", {})) as folder:
        for name in files:
            (folder / name).write_bytes(bytes(2**20))
    return store.artifact(uri)


def pages(path):
    """Count the pages of a file that are in memory."""
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        resident = (ctypes.c_ubyte * -(-len(mapped) // mmap.PAGESIZE))()
        start = ctypes.c_char.from_buffer(mapped)
        assert (
            ctypes.CDLL(None).mincore(ctypes.byref(start), ctypes.c_size_t(len(mapped)), resident)
            == 0
        )
        del start
    return sum(page & 1 for page in resident)


def test_an_update_frees_the_memory_of_old_weights_and_states(
    tmp_path,
):
    class Writing:
        """A learner that looks for its old weights and state while it writes."""

        def update(self, job, progress):
            return {"train/skipped_in_a_row": 0.0}

        def save_policy(self, folder):
            seen.extend(pages(path) for path in old)

    if not drops_pages(tmp_path / "file"):
        pytest.skip("This file system keeps files in memory.")
    store, seen = experiment(tmp_path).store, []
    before, state = (
        published(store, "runs/before/policy", ["a", "b"]),
        published(store, "runs/before/learner", ["c"]),
    )
    policy, learner = store.open(before), store.open(state)
    old = [policy / "a", policy / "b", learner / "c"]
    job = SimpleNamespace(policy=str(policy), learner=str(learner), adapter=None, scores="")
    assert [pages(path) for path in old] == [2**20 // mmap.PAGESIZE] * 3
    publish(
        store,
        AsyncCheckpointer(Writing()),
        job,
        before,
        ArtifactKey("runs/after/policy", "test", "1", {}),
        None,
        print,
    )
    assert seen == [0, 0, 0]
    assert [path.read_bytes() for path in old] == [bytes(2**20)] * 3


@pytest.mark.parametrize(("scores", "section"), [(None, "warm_start"), ("scores", "update")])
def test_a_diverged_update_names_its_learning_rate(scores, section, tmp_path):
    class Diverged:
        def update(self, job, progress):
            return {"train/skipped_in_a_row": 3.0}

    store = experiment(tmp_path).store
    before, target = (
        published(store, "runs/a/policy"),
        ArtifactKey("runs/b/policy", "test", "1", {}),
    )
    job, learner = SimpleNamespace(scores=scores), AsyncCheckpointer(Diverged())
    with pytest.raises(GateClosed, match=rf"Lower {section}\.learning_rate"):
        publish(store, learner, job, before, target, None, print)
    assert not store.holds(target.uri)


def drops_pages(path):
    """Return whether the file system can drop a written file from memory."""
    path.write_bytes(bytes(2**20))
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return not pages(path)


@pytest.mark.parametrize(
    ("critic", "busy", "needed"),
    [("head", False, 4000), ("model", False, 7000), ("head", True, 7000)],
)
def test_an_update_without_disk_space_does_not_begin(critic, busy, needed, tmp_path, monkeypatch):
    place = experiment(tmp_path, algorithm={"use": "ppo", "critic": critic})
    with place.store.publish(ArtifactKey("artifacts/model/tiny", "model", "0", {})) as folder:
        (folder / "model.safetensors").write_bytes(bytes(1000))
    policy = place.store.artifact("artifacts/model/tiny")
    size = sum(path.stat().st_size for path in place.store.open(policy).iterdir())
    monkeypatch.setattr(
        shutil, "disk_usage", lambda folder: SimpleNamespace(free=needed * size // 1000)
    )
    require_space(place.store, place.sizes(policy), busy)
    monkeypatch.setattr(
        shutil, "disk_usage", lambda folder: SimpleNamespace(free=needed * size // 1000 - 1)
    )
    with pytest.raises(OSError, match="Free some space"):
        require_space(place.store, place.sizes(policy), busy)


def test_a_warm_start_shares_prefixes_by_its_setting(tmp_path):
    warm_start = {"demonstrations": "my:script", "epochs_per_round": 3, "learning_rate": 0.5}
    ends = set()
    for share in (True, False):
        place = experiment(tmp_path, warm_start=warm_start, update={"share_prefixes": share})
        with place.store.publish(ArtifactKey("artifacts/model/1f2e", "model", "0", {})) as folder:
            (folder / "model.safetensors").write_bytes(b"weights")
        model = place.store.artifact("artifacts/model/1f2e")
        job = warm_start_job(place, model, model, 1)
        settings = job.update
        assert (settings.share_prefixes, settings.learning_rate, settings.epochs) == (share, 0.5, 3)
        ends.add(job.end)
    assert len(ends) == 2


@pytest.fixture
def parent(tmp_path):
    """A run `base` of one step with its learner state and update metrics."""
    store = experiment(tmp_path).store
    policy = ArtifactKey("runs/base/steps/000001/policy", "update", "base, step 1", {})
    with store.publish(policy) as folder, measuring(folder) as metrics:
        metrics["train/skipped_in_a_row"] = 1.0
        (folder / "model.safetensors").write_bytes(b"weights")
    with store.publish(keys.learner(policy)) as folder:
        (folder / "learner.safetensors").write_bytes(b"moments")
    return policy


def first_job(tmp_path, **update):
    with opened(experiment(tmp_path, model="run:base@1", update=update), "demo") as run:
        run.remember_start(run.parent.policy)
        scored = published(run.store, "runs/demo/steps/000001/scored")
        target = StageKeys(run.settings).policy("demo", run.start, scored, 1)
        return run, step_job(run, run.store.resolve(run.start), scored, target, 1)


def test_the_first_step_may_continue_the_parents_moments(tmp_path, parent):
    run, job = first_job(tmp_path, optimizer_state="parent")
    assert job.start == label_of(run, 0) == parent.key
    assert job.learner == str(run.store.root / "runs/base/steps/000001/learner")
    assert job.before["train/skipped_in_a_row"] == 1.0


def test_the_first_step_has_fresh_moments_by_default(tmp_path, parent):
    run, job = first_job(tmp_path)
    assert job.start == label_of(run, 0) == f"fresh:{run.start.digest}"
    assert (job.learner, job.before) == (None, {})


def test_each_step_has_the_learning_rate_of_its_schedule(tmp_path, parent):
    settings = {"learning_rate": 4e-4, "lr_scheduler_type": "linear"}
    here = experiment(tmp_path, model="run:base@1", steps=4, update=settings)
    with opened(here, "demo") as run:
        run.remember_start(policy := run.parent.policy)
        rates = []
        for step in (1, 2, 3, 4):
            scored = published(run.store, f"runs/demo/steps/{step:06d}/scored")
            target = StageKeys(run.settings).policy("demo", policy, scored, step)
            rates.append(step_job(run, policy, scored, target, step).update.learning_rate)
            with run.store.publish(target) as folder, measuring(folder):
                pass
            policy = run.store.artifact(target.uri)
    assert rates == pytest.approx([4e-4, 3e-4, 2e-4, 1e-4])


def test_missing_moments_of_a_parent_are_refused(tmp_path, parent):
    experiment(tmp_path).store.remove(keys.learner(parent).uri)
    with pytest.raises(ValueError, match=r"is 'parent', .*runs/base/steps/000001/policy"):
        first_job(tmp_path, optimizer_state="parent")
