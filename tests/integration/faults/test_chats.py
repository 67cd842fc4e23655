"""A warm start on a file of chats."""

import shlex

import pytest
from safetensors.torch import load_file
from torch import equal

from agentfly_core.records.parquet import EPISODES, read_trajectories
from tests.support.chats import chat_of_episode, json_lines
from tests.support.killed_commands import TINY, TRAIN, summary


@pytest.mark.long
def test_a_file_of_the_demonstrations_gives_their_weights(lives, tmp_path):
    assert lives.run(tmp_path, "warm-start", TINY).code == 0
    (played,) = tmp_path.glob("artifacts/demonstrate/*")
    rows = map(chat_of_episode, read_trajectories(played / EPISODES))
    file = json_lines(tmp_path / "chats.jsonl", rows)
    (before,) = tmp_path.glob("artifacts/warm_start/*")
    choice = f"warm_start={{demonstrations: 'file:{file}', rounds: 2, batch: 16}}"
    end = lives.run(tmp_path, "warm-start", TINY, choice)
    assert end.code == 0, end.printed
    (after,) = {*tmp_path.glob("artifacts/warm_start/*")} - {before}
    for name in ("001", "002"):
        policies = [load_file(one / name / "policy/model.safetensors") for one in (before, after)]
        assert all(equal(policies[1][key], weight) for key, weight in policies[0].items())


@pytest.fixture
def sums(tmp_path):
    """Settings of a warm start on a file of sums, some of them held out."""
    rows = [
        {"prompt": f"What is {n}+{n}?", "completion": str(2 * n), "answer": str(2 * n)}
        for n in range(10, 74)
    ]
    file = json_lines(tmp_path / "chats.jsonl", rows)
    return (
        f"data={{use: 'agentfly_core.datasets.files:files', train_file: '{file}', train: 48, "
        "validation: 0, test: 16}",
        f"warm_start={{demonstrations: 'file:{file}', rounds: 3, batch: 8}}",
    )


def require_losses(folder, printed):
    losses = [one["held_out_loss"] for one in summary(folder)["losses"]]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0] - 0.5
    assert f"{losses[-1]:.4f}" in printed


def run_printed(lives, folder, printed):
    """Run the commands that the end of a warm start prints; returns their names."""
    lines = [line for line in printed.splitlines() if line.startswith("agentfly ")]
    for line in lines:
        used = lives.run(folder, *shlex.split(line)[1:])
        assert used.code == 0, used.printed
    return [line.split()[1] for line in lines]


@pytest.mark.long
def test_a_warm_start_alone_is_a_run_whose_policy_other_commands_take(lives, tmp_path, sums):
    end = lives.run(tmp_path, *TRAIN, *sums, "steps=0")
    assert end.code == 0, end.printed
    require_losses(tmp_path, end.printed)
    assert run_printed(lives, tmp_path, end.printed) == ["play", "export", "evaluate", "compare"]
    end = lives.run(tmp_path, *TRAIN, *sums, "steps=1")
    assert end.code == 0, end.printed
    assert "step 1/1" in end.printed


@pytest.mark.long
def test_a_warm_start_alone_needs_no_reward(lives, tmp_path, sums):
    without = (*sums, "rewards={}", "evaluate.goal=''")
    end = lives.run(tmp_path, *TRAIN, *without, "steps=0")
    assert end.code == 0, end.printed
    require_losses(tmp_path, end.printed)
    assert "success" not in end.printed
    assert run_printed(lives, tmp_path, end.printed) == ["play", "export"]
    again = lives.run(tmp_path, *TRAIN, *without, "steps=0")
    assert again.code == 0, again.printed
    for command in (("evaluate", TINY, *without, "steps=0"), ("compare", "demo")):
        refused = lives.run(tmp_path, *command)
        assert refused.code == 2
        assert "The experiment has no rewards, so success cannot be measured." in refused.printed
    with_rewards = ("evaluate", TINY, sums[0], "--policy", "run:demo")
    judged = lives.run(tmp_path, *with_rewards)
    assert judged.code == 0, judged.printed
    later = lives.run(tmp_path, *TRAIN, *without, "steps=1")
    assert "rewards: got none, expected at least one import path" in later.printed
