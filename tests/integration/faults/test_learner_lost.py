"""The learner dies, or its state is missing or damaged: repeated updates give the same bytes."""

from pathlib import Path

import pytest

from tests.support.killed_commands import KILLED, RUN, TRAIN, Lives, Whole, digests


def without_states(folder: Path) -> dict[str, str]:
    return {
        name: digest for name, digest in digests(folder).items() if not name.endswith("/learner")
    }


def test_a_killed_learner_restarts_with_the_same_policies(
    at_step_2: Path, lives: Lives, whole: Whole
) -> None:
    end = lives.run(at_step_2, *TRAIN, at="update 3 1", of="learner")
    assert end.code == 0, end.printed
    assert end.moments.count("update 3 1") == 2
    assert digests(at_step_2) == digests(whole.folder)


@pytest.mark.long
def test_updates_without_a_learner_state_are_repeated(
    begun: Path, lives: Lives, whole: Whole
) -> None:
    seldom = ("update.learner_every=2", "update.keep_learner=1")
    end = lives.run(begun, *TRAIN, *seldom, at="update 2 1")
    assert end.code == KILLED
    end = lives.run(begun, *TRAIN, *seldom)
    assert end.code == 0, end.printed
    assert [moment for moment in end.moments if moment.startswith("replay")] == [
        "replay 1 1",
        "replay 1 2",
    ]
    assert without_states(begun) == without_states(whole.folder)
    assert [path.parent.name for path in begun.glob(f"{RUN}/steps/*/learner")] == ["000003"]


@pytest.mark.long
def test_a_truncated_policy_is_reported_and_recomputed(
    at_step_2: Path, lives: Lives, whole: Whole
) -> None:
    model = at_step_2 / RUN / "steps/000002/policy/model.safetensors"
    model.write_bytes(model.read_bytes()[:-100])
    end = lives.run(at_step_2, *TRAIN)
    assert end.code == 0, end.printed
    assert (
        "steps/000002/policy/model.safetensors is missing, or its size or checksum differs"
        in end.printed
    )
    assert digests(at_step_2) == digests(whole.folder)


@pytest.mark.long
def test_a_truncated_learner_state_falls_back_to_the_previous(
    at_step_2: Path, lives: Lives, whole: Whole
) -> None:
    state = at_step_2 / RUN / "steps/000002/learner/learner.safetensors"
    state.write_bytes(state.read_bytes()[:-100])
    end = lives.run(at_step_2, *TRAIN)
    assert end.code == 0, end.printed
    assert (
        "steps/000002/learner/learner.safetensors is missing, or its size or checksum differs"
        in end.printed
    )
    assert [moment for moment in end.moments if moment.startswith("replay")] == [
        "replay 2 1",
        "replay 2 2",
    ]
    assert without_states(at_step_2) == without_states(whole.folder)
