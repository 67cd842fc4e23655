"""What an update leaves and takes away."""

import pytest
from test_run import lab

from agentfly_core.run import opened
from agentfly_core.store import Slot
from agentfly_core.updating import retain


@pytest.fixture
def run(tmp_path):
    """A run whose first three steps kept their learner states."""
    with opened(lab(tmp_path, update={"keep_learner": 1}), "demo") as run:
        for step in (1, 2, 3):
            with run.store.publish(Slot(f"runs/demo/steps/{step:06d}/learner", "update", str(step), {})) as folder:
                (folder / "learner.safetensors").write_text(f"weights of step {step}")
        yield run


def states(run):
    return sorted(path.parent.name for path in (run.store.root / "runs/demo/steps").glob("*/learner"))


def test_old_learner_states_are_removed(run):
    retain(run, 3)
    assert states(run) == ["000003"]


def test_old_learner_states_stay_while_the_newest_is_damaged(run):
    (run.store.root / "runs/demo/steps/000003/learner/learner.safetensors").write_text("weights of")
    retain(run, 3)
    assert states(run) == ["000001", "000002", "000003"]
