"""A run that is to continue under other code can be killed once that is written down."""

import json
from pathlib import Path

import pytest

from tests.support.killed_commands import KILLED, RUN, TRAIN, Lives, digests

EVEN = """
from agentfly_core import Trajectory, reward

@reward
def even(trajectory: Trajectory) -> float:
    tokens = [token for turn in trajectory.turns for span in turn.sampled for token in span.tokens]
    return sum(token % 2 == REST for token in tokens) / max(1, len(tokens))
"""
EXACT = "agentfly_core.rewards.exact:exact"
WORDS = (*TRAIN, "warm_start=null", "steps=2", f"rewards={{'{EXACT}': 1, 'own_even:even': 1}}")


@pytest.mark.long
def test_a_run_killed_after_accepting_code_keeps_that_code(tmp_path: Path, lives: Lives) -> None:
    (tmp_path / "own_even.py").write_text(EVEN.replace("REST", "0"))
    end = lives.run(tmp_path, *WORDS, at="update 2 1")
    assert end.code == KILLED, end.printed
    first = step_1(tmp_path)

    (tmp_path / "own_even.py").write_text(EVEN.replace("REST", "1"))
    accepting = (*WORDS, "--accept-code")
    end = lives.run(tmp_path, *accepting, at=f"publish {RUN}/run.json", time=2)
    assert end.code == KILLED, end.printed
    end = lives.run(tmp_path, *accepting)
    assert end.code == 0, end.printed
    (accepted,) = json.loads((tmp_path / RUN / "run.json").read_text())["accepted_code"]
    assert (accepted["step"], accepted["modules"]) == (1, ["own_even"])
    assert step_1(tmp_path) == first

    (tmp_path / "own_even.py").write_text(EVEN.replace("REST", "0"))
    end = lives.run(tmp_path, *WORDS)
    assert (end.code, "The code of own_even." in end.printed) == (2, True)


def step_1(folder: Path) -> dict[str, str]:
    """The artifacts of the first step, without the learner state, which is temporary."""
    made = {name: one for name, one in digests(folder).items() if f"{RUN}/steps/000001" in name}
    return {name: made[name] for name in made if not name.endswith("/learner")}
