"""The learner on several nodes: started there through ssh, and gone everywhere when it is gone
here.
"""

import base64
import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from agentfly_core.config.site import Site
from agentfly_core.system.hardware import KEEPING_MEMORY, WAITING
from agentfly_core.system.service import Service, ServiceLost, supervised
from agentfly_core.system.supervisor import ChildState
from agentfly_core.training import multinode, remote_watchdog
from agentfly_core.training.client import DeepSpeedLearner, launch
from tests.support.generated_trajectories import crowd
from tests.support.learner_jobs import digests, saved, stored
from tests.support.second_node import HERE, THERE, second_node
from tests.support.waiting import LIMIT

TETHERED = """
import sys
from agentfly_core.training import remote_watchdog
remote_watchdog.SILENCE = float(sys.argv.pop(1))
remote_watchdog.main()
"""
PARENT = (
    "import subprocess, sys; "
    "subprocess.run([sys.executable, '-c', 'import signal; signal.pause()'])"
)


def after(command: list[str], name: str) -> str:
    return command[command.index(name) + 1]


def world(command: list[str]) -> dict[str, list[Any]]:
    ranks: dict[str, list[Any]] = json.loads(
        base64.urlsafe_b64decode(after(command, "--world_info"))
    )
    return ranks


def test_the_launcher_gets_the_gpus_of_the_learner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert world(launch("s", Site(device="cuda", learner_gpus=(1, 2, 3)))[0]) == {
        "localhost": ["1", "2", "3"]
    }
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    assert world(launch("s", Site(device="cuda", learner_gpus=(1, 2, 3)))[0]) == {
        "localhost": ["5", "6", "7"]
    }
    assert world(launch("s", Site(ranks=2))[0]) == {"localhost": [0, 1]}


def test_a_single_rank_starts_on_its_gpu_without_the_launcher(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    command, _ = launch("s", Site(device="cuda", learner_gpus=(2,)))
    assert {"env", "RANK=0", "WORLD_SIZE=1", "CUDA_VISIBLE_DEVICES=6"} < set(command)
    assert "--world_info" not in command
    assert "CUDA_VISIBLE_DEVICES" not in " ".join(launch("s", Site())[0])


def test_the_launcher_gets_its_node_and_the_first_address(
    tmp_path: Path,
) -> None:
    (tmp_path / "hosts").write_text(f"{HERE} slots=2\nworker-2 slots=4\n")
    command, environment = launch("/tmp/s", Site(hostfile=str(tmp_path / "hosts"), threads=8))
    assert command[:7] == [
        sys.executable,
        "-m",
        "agentfly_core.training.multinode",
        "--nodes",
        HERE,
        "worker-2",
        "--",
    ]
    assert world(command) == {HERE: [0, 1], "worker-2": [0, 1, 2, 3]}
    places = [after(command, name) for name in ("--node_rank", "--master_addr", "--master_port")]
    assert places == ["{node}", HERE, "{port}"]
    assert (after(command, "--socket"), after(command, "--threads")) == ("/tmp/s", "2")
    assert environment["DS_ACCELERATOR"] == "cpu"


def test_a_remote_first_node_is_refused_before_the_start(
    tmp_path: Path,
) -> None:
    (tmp_path / "hosts").write_text("192.0.2.1 slots=1\nworker-2 slots=1\n")
    with pytest.raises(ValueError, match=r"cannot listen as '192.0.2.1'.* must be this machine"):
        launch("/tmp/s", Site(hostfile=str(tmp_path / "hosts")))


def test_other_nodes_get_the_environment_without_secrets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "eth 1")
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    words = shlex.split(multinode.remote(["--world_info", "e30="]))
    assert words[:2] == ["cd", str(Path.cwd())]
    assert {"NCCL_SOCKET_IFNAME=eth 1", "DS_ACCELERATOR=cpu"} <= set(words)
    assert words[-5:] == [
        sys.executable,
        "-m",
        "agentfly_core.training.remote_watchdog",
        "--world_info",
        "e30=",
    ]
    assert not any("hf_secret" in word for word in words)


@pytest.mark.parametrize(
    ("silence", "closes"), [(60.0, True), (2.0, False)], ids=["closed", "silent"]
)
def test_a_lost_connection_ends_the_processes_of_a_tether(silence: float, closes: bool) -> None:
    command = [sys.executable, "-c", TETHERED, str(silence), sys.executable, "-c", PARENT]
    with subprocess.Popen(command, stdin=subprocess.PIPE, bufsize=0) as held:
        assert held.stdin
        while len(family := psutil.Process(held.pid).children(recursive=True)) < 2:
            held.stdin.write(remote_watchdog.SIGN)
        if closes:
            held.stdin.close()
        left = psutil.wait_procs([psutil.Process(held.pid), *family], timeout=LIMIT)[1]
        for process in left:
            process.kill()
    assert left == []


def test_a_tether_ends_with_its_process() -> None:
    command = [
        sys.executable,
        "-m",
        "agentfly_core.training.remote_watchdog",
        sys.executable,
        "-c",
        "raise SystemExit(7)",
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as held:
        assert held.wait(LIMIT) == 7


@pytest.fixture(scope="module")
def hostfile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with second_node(tmp_path_factory.mktemp("ssh")) as path:
        yield path


@pytest.fixture
def two_nodes(
    hostfile: str, service_address: Callable[[str], Path], tmp_path: Path
) -> Iterator[Service]:
    """A learner with a rank here and one on the second node."""
    address = service_address("learner")
    command, env = launch(str(address), Site(hostfile=hostfile, threads=1, token_budget=96))
    with supervised("learner", command, env, address, tmp_path / "log", "tests") as service:
        yield service
    left = list(ranks(service))
    assert psutil.wait_procs(left, timeout=LIMIT)[1] == [], "a rank is left on a node"


def ranks(service: Service) -> Iterator[psutil.Process]:
    """The processes of the learner's ranks."""
    for process in psutil.process_iter(["cmdline", "environ"]):
        if service.address in (process.info["cmdline"] or ()) and "RANK" in (
            process.info["environ"] or ()
        ):
            yield process


def second(service: Service) -> psutil.Process:
    """The rank on the second node."""
    rank = next(process for process in ranks(service) if process.environ()["RANK"] == "1")
    assert rank.environ()["SSH_CONNECTION"].split()[2] == THERE
    return rank


def test_two_nodes_learn_the_same_as_two_ranks_and_restart(
    two_nodes: Service, workers: Callable[[int], Service], nano: Path, tmp_path: Path
) -> None:
    job = stored(tmp_path, nano, crowd(6, 4))
    one_machine, learner = DeepSpeedLearner(workers(2)), DeepSpeedLearner(two_nodes)
    one_machine.update(job)
    expected = [digests(folder) for folder in saved(one_machine, tmp_path / "one")]
    learner.update(job)
    assert [digests(folder) for folder in saved(learner, tmp_path / "two")] == expected

    far = second(two_nodes)
    expected_there = {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1", **WAITING, **KEEPING_MEMORY}
    assert {name: far.environ()[name] for name in expected_there} == expected_there
    far.kill()
    far.wait(LIMIT)
    with pytest.raises(ServiceLost):
        learner.save_policy(tmp_path)
    learner.update(job)
    assert [digests(folder) for folder in saved(learner, tmp_path / "again")] == expected

    state, far = ChildState.read(two_nodes.address), second(two_nodes)
    assert state
    psutil.Process(state.keeper).kill()
    far.wait(LIMIT)


def test_the_end_on_one_node_ends_all_nodes_and_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends_with_the_connection = "import sys; sys.stdin.buffer.read()"
    (tmp_path / "job.py").write_text(
        "import signal, sys\nsys.exit(7) if sys.argv[1] == '0' else signal.pause()"
    )
    monkeypatch.setattr(multinode, "SSH", [sys.executable, "-c", ends_with_the_connection])
    job = [sys.executable, str(tmp_path / "job.py"), "{node}", "{port}"]
    monkeypatch.setattr(sys, "argv", ["multinode", "--nodes", HERE, "worker-2", "--", *job])
    with pytest.raises(SystemExit, match=rf"{HERE} .*exit code 7\.$"):
        multinode.main()
