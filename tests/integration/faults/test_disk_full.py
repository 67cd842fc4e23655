"""On a full disk, published artifacts stay, and the run continues later."""

from pathlib import Path

from tests.support.killed_commands import RUN, TRAIN, Lives, Whole, digests


def test_a_full_disk_leaves_no_half_artifact(at_step_2: Path, lives: Lives, whole: Whole) -> None:
    before = digests(at_step_2)
    end = lives.run(at_step_2, *TRAIN, largest=2_000_000)
    assert end.code == 2
    assert "File too large" in end.printed
    new = {name for name in digests(at_step_2) if name not in before}
    assert new == {
        f"{RUN}/steps/000003/{name}" for name in ("rollout-000", "rollout-001", "scored")
    }
    assert {name: digests(at_step_2)[name] for name in before} == before
    assert not list(at_step_2.rglob(".tmp-*"))

    end = lives.run(at_step_2, *TRAIN)
    assert end.code == 0, end.printed
    assert digests(at_step_2) == digests(whole.folder)
