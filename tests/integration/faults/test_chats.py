"""A warm start on a file of chats."""

import shlex

from safetensors.torch import load_file
from torch import equal

from agentfly_core.records.parquet import EPISODES, read_trajectories
from tests.support.chats import chat_of_episode, json_lines
from tests.support.killed_commands import TINY, TRAIN, summary


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


def test_a_warm_start_alone_is_a_run_whose_policy_other_commands_take(lives, tmp_path):
    rows = [
        {"prompt": f"What is {n}+{n}?", "completion": str(2 * n), "answer": str(2 * n)}
        for n in range(10, 74)
    ]
    file = json_lines(tmp_path / "chats.jsonl", rows)
    settings = (
        f"data={{use: 'agentfly_core.datasets.files:files', train_file: '{file}', train: 48, "
        "validation: 0, test: 16}",
        f"warm_start={{demonstrations: 'file:{file}', rounds: 3, batch: 8}}",
    )
    end = lives.run(tmp_path, *TRAIN, *settings, "steps=0")
    assert end.code == 0, end.printed
    losses = [one["held_out_loss"] for one in summary(tmp_path)["losses"]]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0] - 0.5
    assert f"{losses[-1]:.4f}" in end.printed
    for word in ("evaluate", "play", "export", "compare"):
        (line,) = [
            line for line in end.printed.splitlines() if line.startswith(f"agentfly {word} ")
        ]
        used = lives.run(tmp_path, *shlex.split(line)[1:])
        assert used.code == 0, used.printed
    end = lives.run(tmp_path, *TRAIN, *settings, "steps=1")
    assert end.code == 0, end.printed
    assert "step 1/1" in end.printed
