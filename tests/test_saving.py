"""Learner states that are written while training goes on: a real learner, a real store."""

import threading
from contextlib import contextmanager, nullcontext

import pytest
from learning import after, digests, kill_worker, saved, stored
from played import crowd

from agentfly_core.learner import LearnerFailed, LearnerLost
from agentfly_core.learners.deepspeed import DeepSpeedLearner
from agentfly_core.saving import Saving
from agentfly_core.store import Slot, Store

SLOT = Slot("steps/1/learner", "update", "1", {})


@pytest.fixture
def saving(workers):
    return Saving(DeepSpeedLearner(workers(1)))


@pytest.fixture
def job(tmp_path, nano):
    return stored(tmp_path, nano, crowd(6, 4))


def test_the_state_that_is_saved_is_that_of_the_copy_whatever_the_learner_does_next(saving, job, tmp_path):
    store, learner, written = Store.at(str(tmp_path / "store"), tmp_path), saving.learner, threading.Event()

    @contextmanager
    def publication():
        with store.publish(SLOT) as folder:
            yield folder
            written.wait(60)

    learner.update(job)
    _, expected = saved(learner, tmp_path / "expected")
    done = []
    saving.begin(publication(), lambda: done.append(store.find(SLOT) is not None))
    learner.update(after(job, 1))
    assert not store.find(SLOT)
    written.set()
    saving.wait()
    assert done == [True]
    state = store.root / SLOT.uri
    assert {name: digests(state)[name] for name in digests(expected)} == digests(expected)


def test_what_went_wrong_is_raised_once(saving, job, tmp_path):
    saving.learner.update(job)
    saving.begin(nullcontext(tmp_path / "missing"), lambda: None)
    with pytest.raises(LearnerFailed, match="missing"):
        saving.wait()
    saving.wait()
    assert saving.learner.label() == "step/1", "the learner goes on"


def test_a_learner_that_dies_while_its_state_is_written_is_told_of(saving, job, tmp_path, caplog):
    def dying():
        raise LearnerLost("the learner died during 'save_state'")

    saving.learner.update(job)
    saving.begin(nullcontext(tmp_path), dying)
    saving.wait()
    assert "A learner state was not saved, and is made again when it is needed" in caplog.text
    kill_worker(saving.learner._service)
    with pytest.raises(LearnerLost):
        saving.begin(nullcontext(tmp_path), dying)
