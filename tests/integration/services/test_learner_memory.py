"""Memory options of the learner: sharding, offloading, activation checkpointing and released
policies.
"""

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from pydantic import TypeAdapter
from transformers import AutoModelForCausalLM, Qwen2Config

from agentfly_core.models import probe
from agentfly_core.system.service import supervised
from agentfly_core.testing.trajectories import trajectory, turn
from agentfly_core.training.client import DeepSpeedLearner, launch
from agentfly_core.training.job import UpdateJob
from agentfly_core.training.policy import load_policy, recompute_activations
from tests.support.learner_jobs import (
    DEVICE,
    PPO,
    after,
    digests,
    distance,
    going_on,
    saved,
    site,
    stored,
)


@contextmanager
def another(place, address, log):
    """A learner on another site."""
    command, env = launch(str(address), place)
    with supervised("learner", command, env, address, log, "tests") as service:
        yield DeepSpeedLearner(service)


@pytest.mark.parametrize(
    ("ranks", "stage", "offload"),
    [
        pytest.param(1, 1, "optimizer", marks=pytest.mark.long),
        pytest.param(2, 3, "all", marks=pytest.mark.long),
        pytest.param(1, 3, "all", marks=pytest.mark.long),
        pytest.param(2, 0, "none", marks=pytest.mark.long),
        pytest.param(2, 2, "optimizer", marks=pytest.mark.long),
    ],
)
def test_zero_stages_learn_the_same(ranks, stage, offload, learner, job, service_address, tmp_path):
    job = replace(job, algorithm=PPO)  # its critic has a separate learning rate
    learner.update(job)
    expected, _ = saved(learner, tmp_path / "expected")
    place = site(ranks, threads=2, zero_stage=stage).model_copy(update={"offload": offload})
    with another(place, service_address("learner"), tmp_path / "log") as other:
        first, _ = going_on(other, job, tmp_path)
        learner.update(after(job, 1, *first))
    assert distance(first[0], expected) < 0.01 * distance(job.policy, expected)


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """A model in bfloat16 with matrices of more than 100,000 weights: ZeRO 3 divides only such
    matrices.
    """
    sizes = {
        "hidden_size": 64,
        "intermediate_size": 2048,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
    }
    folder = tmp_path_factory.mktemp("wide")
    config = Qwen2Config(vocab_size=2048, **sizes, num_key_value_heads=2, tie_word_embeddings=True)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
    model.save_pretrained(folder)
    tokens = probe.likely_tokens(model)
    probe.write(folder, tokens, probe.of_model(model, tokens))
    return folder


@pytest.mark.long
def test_ranks_stay_in_step_with_uneven_token_counts(learner, wide, service_address, tmp_path):
    sizes = [
        600,
        600,
        600,
        10,
        10,
        10,
        10,
        10,
    ]  # of three long ones, which are projected in pieces, one rank has two
    replies = [dict.fromkeys(range(5 + i, 5 + i + size), -7.0) for i, size in enumerate(sizes)]
    episodes = [
        trajectory(turn([1, i], reply), name=f"t{i}", group=f"g{i % 2}")
        for i, reply in enumerate(replies)
    ]
    job = replace(stored(tmp_path, wide, episodes), dtype="bfloat16", algorithm=PPO)
    learner.update(job)
    expected, _ = saved(learner, tmp_path / "expected")
    place = site(2, threads=2, zero_stage=3, token_budget=1024)
    with another(place, service_address("learner"), tmp_path / "log") as other:
        first, _ = going_on(other, job, tmp_path)
    assert distance(first[0], expected) < 0.2 * distance(job.policy, expected)


FORGETFUL = """
import gc, json, sys
import torch
from pydantic import TypeAdapter
from agentfly_core.training.job import RunUpdate, UpdateJob
from agentfly_core.training.engine import Memory
from agentfly_core.training.worker import Worker, join

def held():
    storages = [x.untyped_storage() for x in gc.get_objects() if isinstance(x, torch.Tensor)]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())

ranks, kept = join(), []
jobs = TypeAdapter(list[UpdateJob]).validate_json(sys.argv[1])
for stage, job in zip((0, 1, 2, 3, 1, 3), jobs, strict=True):
    worker, before = Worker(ranks, Memory(stage, "none", False), 96), held()
    worker.obey(RunUpdate(job=job), lambda *steps: None)
    worker.forget()
    kept.append(held() - before)
print(json.dumps(kept))
"""


@pytest.mark.service
@pytest.mark.long
def test_a_released_policy_leaves_no_memory(job, nano, tmp_path):
    jobs = [
        replace(job, algorithm=PPO, dtype=dtype) for dtype in [*["float32"] * 4, *["bfloat16"] * 2]
    ]
    alone = dict.fromkeys(["RANK", "LOCAL_RANK"], "0") | dict.fromkeys(
        ["WORLD_SIZE", "LOCAL_SIZE"], "1"
    )
    alone |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "DS_ACCELERATOR": DEVICE}
    sent = TypeAdapter(list[UpdateJob]).dump_json(jobs)
    output = subprocess.run(
        [sys.executable, "-c", FORGETFUL, sent],
        env=os.environ | alone,
        capture_output=True,
        text=True,
    )
    assert output.returncode == 0, output.stderr
    kept = json.loads(output.stdout.splitlines()[-1])
    assert max(kept) < 0.01 * (nano / "model.safetensors").stat().st_size, kept


@pytest.mark.long
def test_activation_checkpointing_changes_no_byte(learner, job, service_address, tmp_path):
    job = replace(job, algorithm=PPO | {"critic": "model"})
    learner.update(job)
    expected = saved(learner, tmp_path / "expected")
    place = site(1, threads=1, gradient_checkpointing=True)
    with another(place, service_address("learner"), tmp_path / "log") as other:
        other.update(job)
        copies = saved(other, tmp_path / "found")
    assert [digests(folder) for folder in copies] == [digests(folder) for folder in expected]


def test_activation_checkpointing_runs_a_layer_twice(nano):
    policy, calls = load_policy(str(nano), "float32"), []
    recompute_activations(policy)
    policy.model.model.layers[0].mlp.register_forward_pre_hook(lambda *_: calls.append(1))
    sampled = torch.tensor([[False, True, True]])
    policy(torch.tensor([[1, 2, 3]]), sampled, 1.0)[0].sum().backward()
    assert len(calls) == 2


def test_activation_checkpointing_refuses_dropout(nano):
    policy = load_policy(str(nano), "float32")
    policy.model.config.attention_dropout = 0.1
    with pytest.raises(ValueError, match=r"llama .*dropout"):
        recompute_activations(policy)


def test_a_policy_without_dropout_or_minus_zero_is_loaded(nano):
    policy = load_policy(str(nano), "float32")
    assert not policy.training
    assert not any((weight.eq(0) & weight.signbit()).any() for weight in policy.parameters())
