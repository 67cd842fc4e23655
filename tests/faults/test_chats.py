"""A warm start on a file of chats."""

import json

from safetensors.torch import load_file
from torch import equal

from agentfly_core.records.parquet import EPISODES, read_trajectories
from tests.support.chats import chat_of_episode, json_lines
from tests.support.lives import TINY


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


def test_the_loss_of_held_out_chats_is_measured_and_falls(lives, tmp_path):
    rows = [
        {"prompt": f"What is {n}+{n}?", "completion": str(2 * n), "answer": str(2 * n)}
        for n in range(10, 74)
    ]
    file = json_lines(tmp_path / "chats.jsonl", rows)
    data = (
        f"data={{use: 'agentfly_core.datasets.files:files', train_file: '{file}', train: 48, "
        "validation: 0, test: 16}"
    )
    choice = f"warm_start={{demonstrations: 'file:{file}', rounds: 3, batch: 8}}"
    end = lives.run(tmp_path, "warm-start", TINY, data, choice)
    assert end.code == 0, end.printed
    written = sorted(tmp_path.glob("artifacts/warm_start/*/*/policy/metrics.json"))
    metrics = [json.loads(path.read_text())["metrics"] for path in written]
    losses = [one["train/held_out_loss"] for one in metrics]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0] - 0.5
