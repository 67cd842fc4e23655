"""Learner states that are written while training continues: a real learner, a real store."""

import os
import threading
from contextlib import contextmanager, nullcontext

import pytest

from agentfly_core.pipeline.inputs import base_model
from agentfly_core.pipeline.services import learner_service
from agentfly_core.store.artifact import ArtifactKey
from agentfly_core.store.store import Store
from agentfly_core.system.service import ServiceLost
from agentfly_core.training.checkpointing import AsyncCheckpointer
from agentfly_core.training.client import DeepSpeedLearner
from agentfly_core.training.job import LearnerFailed
from tests.support.experiments import experiment
from tests.support.learner_jobs import after, digests, kill_worker, saved
from tests.support.waiting import LIMIT

SLOT = ArtifactKey("runs/demo/steps/000001/learner", "update", "1", {})


@pytest.fixture
def checkpointer(workers):
    return AsyncCheckpointer(DeepSpeedLearner(workers(1)))


def test_later_updates_do_not_change_the_saved_state(checkpointer, job, tmp_path):
    store, learner, written = (
        Store.at(str(tmp_path / "store"), tmp_path),
        checkpointer.learner,
        threading.Event(),
    )

    @contextmanager
    def publication():
        with store.publish(SLOT) as folder:
            yield folder
            written.wait(LIMIT)

    learner.update(job)
    _, expected = saved(learner, tmp_path / "expected")
    done = []
    checkpointer.begin(publication(), lambda: done.append(store.find(SLOT) is not None))
    learner.update(after(job, 1))
    assert not store.find(SLOT)
    written.set()
    checkpointer.wait()
    assert done == [True]
    state = store.root / SLOT.uri
    assert {name: digests(state)[name] for name in digests(expected)} == digests(expected)


def test_a_save_error_is_raised_once(checkpointer, job, tmp_path):
    checkpointer.learner.update(job)
    checkpointer.begin(nullcontext(tmp_path / "missing"), lambda: None)
    with pytest.raises(LearnerFailed, match="missing"):
        checkpointer.wait()
    checkpointer.wait()
    assert checkpointer.learner.label() == "step/1", "the learner continues"


def test_the_death_of_a_learner_amid_a_save_is_reported(
    checkpointer, workers, job, tmp_path, caplog
):
    os.mkfifo(tmp_path / "learner.json")  # which nobody reads: the learner does not get to the end
    checkpointer.learner.update(job)
    checkpointer.begin(nullcontext(tmp_path), lambda: pytest.fail("nothing was saved"))
    kill_worker(workers(1))
    checkpointer.wait()
    assert "A learner state could not be saved" in caplog.text
    with pytest.raises(ServiceLost, match="state None"):
        checkpointer.begin(nullcontext(tmp_path), lambda: None)


@pytest.mark.service
def test_a_run_that_fails_still_gets_its_last_state(job, tmp_path):
    place = experiment(tmp_path)
    with (
        pytest.raises(KeyError, match="a bug"),
        learner_service(
            place.store, base_model(place), True, place.site, "tests", tmp_path
        ) as states,
    ):
        states.learner.update(job)
        states.begin(place.store.publish(SLOT), lambda: None)
        raise KeyError("a bug")
    assert place.store.find(SLOT)


def test_a_pending_state_is_counted(checkpointer, job, tmp_path):
    assert not checkpointer.busy()
    os.mkfifo(tmp_path / "learner.json")
    checkpointer.learner.update(job)
    checkpointer.begin(nullcontext(tmp_path), lambda: None)
    assert checkpointer.busy()
    assert "step/1" in (tmp_path / "learner.json").read_text()
    checkpointer.wait()
    assert not checkpointer.busy()
