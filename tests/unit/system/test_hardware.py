"""Machines and GPUs of a site, and refused settings."""

from pathlib import Path

import pytest

from agentfly_core.config import loading
from agentfly_core.config.experiment import Settings
from agentfly_core.config.site import Site
from agentfly_core.inference import vllm_server
from agentfly_core.system.hardware import WAITING, slots, visible
from agentfly_core.training import client

TWO_NODES = """\
# ours
worker-1 slots=4
worker-2  slots=2   # older
"""


@pytest.fixture
def hostfile(tmp_path: Path) -> str:
    (tmp_path / "hosts").write_text(TWO_NODES)
    return str(tmp_path / "hosts")


def test_a_hostfile_has_nodes_in_order_with_their_slots(hostfile: str) -> None:
    assert list(slots(hostfile).items()) == [("worker-1", 4), ("worker-2", 2)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("worker-1 slot=4", r"has the line 'worker-1 slot=4', expected `NAME slots=NUMBER`"),
        ("worker-1 slots=0", r"has the line 'worker-1 slots=0'"),
        ("worker-1", r"has the line 'worker-1'"),
        ("a slots=4\na slots=2", r"has the line 'a slots=2', expected .*each NAME "),
        ("# nothing\n", r"lists no nodes, expected lines such as `worker-1 slots=4`"),
    ],
)
def test_a_line_of_another_format_is_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text(text)
    with pytest.raises(ValueError, match=message):
        slots(str(tmp_path / "hosts"))


def test_ranks_follow_from_the_hostfile_or_the_gpus(hostfile: str) -> None:
    assert Site(hostfile=hostfile).ranks == 6
    assert Site(device="cuda", learner_gpus=(1, 2, 3)).ranks == 3
    assert Site(device="cuda").ranks == Site().ranks == 1


def test_the_learner_uses_the_first_gpus_by_default(
    hostfile: str,
) -> None:
    assert Site(device="cuda", ranks=2).nodes == {"localhost": (0, 1)}
    assert Site(device="cuda", learner_gpus=(2, 3)).nodes == {"localhost": (2, 3)}
    chosen = Site(device="cuda", hostfile=hostfile, sampler_gpus=(0,), learner_gpus=(1, 2, 3, 4))
    assert list(chosen.nodes.items()) == [("worker-1", (1, 2, 3, 4)), ("worker-2", (0, 1))]


@pytest.mark.parametrize(
    ("gpus", "shared"),
    [
        ({}, True),
        ({"ranks": 4}, True),
        ({"sampler_gpus": (0, 1), "learner_gpus": (1, 2)}, True),
        ({"learner_gpus": (1, 2, 3)}, False),
        ({"sampler": "transformers"}, False),
    ],
)
def test_vllm_and_the_learner_take_turns_on_shared_gpus(
    gpus: dict[str, object], shared: bool
) -> None:
    assert Site.model_validate({"sampler": "vllm", "device": "cuda", **gpus}).shares_gpus is shared
    assert not Site(sampler="vllm", ranks=2).shares_gpus, "on CPU there is none"


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        (
            {"RANKS": "5"},
            r"got 5 ranks, but learner_gpus or the hostfile sets "
            r"6 ranks \(worker-1 0,1,2,3; worker-2 0,1\)",
        ),
        (
            {"DEVICE": "cuda", "LEARNER_GPUS": "1,2,3"},
            r"got 6 ranks, but learner_gpus or the hostfile sets "
            r"5 ranks \(worker-1 1,2,3; worker-2 0,1\)",
        ),
        (
            {"LEARNER_GPUS": "1"},
            r"sampler_gpus \[\] and learner_gpus \[1\] with `device: cpu`. Remove both",
        ),
        ({"SAMPLER_GPUS": "0"}, r"got sampler_gpus \[0\] .* Remove both"),
        ({"DEVICE": "cuda", "SAMPLER_GPUS": "0,0"}, r"sampler_gpus: .*expected each GPU only once"),
        ({"DEVICE": "cuda", "SAMPLER_GPUS": "-1"}, r"sampler_gpus.0: .*greater than or equal to 0"),
        (
            {"DEVICE": "cuda", "SAMPLER": "transformers", "SAMPLER_GPUS": "0,1"},
            r"sampler_gpus .*transformers. uses only one",
        ),
        ({"HOSTFILE": "nowhere"}, r"The hostfile 'nowhere' is missing"),
    ],
)
def test_contradictory_places_are_refused(
    variables: dict[str, str], message: str, hostfile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"HOSTFILE": hostfile, **variables}.items():
        monkeypatch.setenv(f"AGENTFLY_{name}", value)
    with pytest.raises(ValueError, match=message) as refused:
        loading.site("local")
    assert len(str(refused.value).splitlines()) == 2, "one fault is told in one line"


def test_gpus_are_counted_within_cuda_visible_devices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert visible((1, 3)) == ["1", "3"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    assert visible((1, 3)) == ["5", "7"]


def test_waiting_threads_give_up_their_cores(
    tmp_path: Path,
) -> None:
    rewards = {"agentfly_core.rewards.exact:exact": 1.0}
    settings = Settings(
        model="m", data={"use": "my:data", "train": 1, "test": 1}, rewards=rewards, steps=1
    )
    learner = client.launch(str(tmp_path / "learner.sock"), Site())
    sampler = vllm_server.launch(
        tmp_path / "vllm.sock", tmp_path, settings.dtype, settings.agent, Site(sampler="vllm")
    )
    for _, environment in (learner, sampler):
        assert WAITING.items() <= environment.items()
