"""A GPU or a slot of a CPU is used by one run at a time; waiting runs name the holder."""

import logging
import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from agentfly_core.config import loading
from agentfly_core.config.site import Site
from agentfly_core.system import gpus
from agentfly_core.system.devices import Device, held, numbered, slot
from agentfly_core.system.supervisor import die_with_parent
from flows.flow_run import devices

Driver = Callable[[int], None]
HOLD = """
import os, signal, subprocess, sys
from pathlib import Path
from agentfly_core.system.devices import Device, held
devices = [Device(name, (Path(name),)) for name in sys.argv[2:]]
with held(devices, sys.argv[1], lambda text: print(text, flush=True)):
    print("held", flush=True)
    signal.pause()
"""
WITH_CHILDREN = HOLD.replace(
    'print("held"',
    'subprocess.Popen(["sleep", "600"], close_fds=False); '
    'os.fork() and signal.pause(); print("held"',
)
AS_USER = HOLD.replace("with held", "os.setresuid(*[int(sys.argv[1])] * 3)\nwith held")
DRIVER = """
#include <string.h>
int cuInit(unsigned flags) { return COUNT < 0 ? 999 : COUNT ? 0 : 100; }
int cuDeviceGetCount(int *count) { *count = COUNT; return 0; }
int cuDeviceGet(int *device, int number) { *device = number; return 0; }
int cuDeviceGetUuid_v2(char *identity, int device) {
    memset(identity, 0, 16); identity[15] = device + 1; return 0;
}
"""


@contextmanager
def holding(holder: str, *files: Path, program: str = HOLD) -> Iterator[subprocess.Popen[str]]:
    """A process that holds, or waits for, a device for each of these files."""
    command = [sys.executable, "-c", program, holder, *map(str, files)]
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(
        command, text=True, process_group=0, preexec_fn=die_with_parent, **output
    ) as it:
        try:
            yield it
        finally:
            with suppress(ProcessLookupError):
                os.killpg(it.pid, signal.SIGKILL)


def says(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def never(text: str) -> None:
    raise AssertionError(text)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "agentfly-GPU-1.lock"


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Driver:
    """A driver with `count` GPUs, in place of NVIDIA's."""

    def install(count: int) -> None:
        library = [
            "cc",
            "-shared",
            "-fPIC",
            f"-DCOUNT={count}",
            "-x",
            "c",
            "-",
            "-o",
            str(tmp_path / "libcuda.so.1"),
        ]
        subprocess.run(library, input=DRIVER, text=True, check=True)

    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    return install


def test_a_waiting_run_names_the_holder_and_survives_its_death(file: Path) -> None:
    messages: list[str] = []
    with holding("the run nightly-2026-11-21", file) as night:
        assert says(night) == "held"

        def tell(text: str) -> None:
            messages.append(text)
            night.kill()

        with held([Device("GPU 1", (file,))], "the run mine", tell):
            assert file.read_text().startswith(f"the run mine (process {os.getpid()} on ")
    assert len(messages) == 1
    assert messages[0].startswith(
        f"Waiting for GPU 1, used by the run nightly-2026-11-21 (process {night.pid} on "
    )


def test_nested_blocks_share_a_device(file: Path) -> None:
    with held([Device("GPU 1", (file,))], "the run nightly-2026-11-21", never):
        with held([Device("GPU 1", (file,))], "the run nightly-2026-11-20", never):
            pass
        with holding("another", file) as other:
            assert says(other).startswith("Waiting for")


def test_children_of_the_holder_do_not_keep_the_device(file: Path) -> None:
    with holding("the run mine", file, program=WITH_CHILDREN) as parent:
        assert says(parent) == "held"
        parent.kill()
        parent.wait()
        with held([Device("GPU 1", (file,))], "another", never):
            pass


def test_waiting_ends_with_ctrl_c(file: Path) -> None:
    with held([Device("GPU 1", (file,))], "the run mine", never), holding("another", file) as other:
        assert says(other).startswith(f"Waiting for {file}, used by the run mine ")
        other.send_signal(signal.SIGINT)
        assert "KeyboardInterrupt" in other.communicate()[0]


def test_devices_are_locked_in_one_order(
    tmp_path: Path,
) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    with (
        held([Device("GPU 1", (first,))], "the run mine", never),
        holding("another", second, first) as other,
    ):
        assert says(other).startswith(f"Waiting for {first}")
        with held([Device("GPU 2", (second,))], "the run mine", never):
            pass


def test_the_number_of_slots_limits_the_holders(tmp_path: Path) -> None:
    two = slot(2, str(tmp_path))
    with holding("first", two.files[0]) as first, holding("second", two.files[1]) as second:
        assert [says(first), says(second)] == ["held", "held"]

        def tell(text: str) -> None:
            assert "one of the 2 slots" in text
            assert text.index("used by first") < text.index("; second")
            second.kill()

        with held([two], "third", tell):
            assert two.files[1].read_text().startswith("third")


def test_a_lock_is_shared_by_users_and_safe_to_print(file: Path) -> None:
    with held([Device("GPU 1", (file,))], "the run \x1b[2Jmine", never):
        assert stat.S_IMODE(file.stat().st_mode) == 0o666
        with holding("another", file) as other:
            assert "used by the run [2Jmine (process" in says(other)
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be two other users")
def test_a_user_waits_for_the_device_of_another_user() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as shared:
        os.chmod(shared, 0o1777)  # a sticky folder: only owners remove their files
        file = Path(shared, "agentfly-GPU-1.lock")
        with (
            holding("12001", file, program=AS_USER) as one,
            holding("12002", file, program=AS_USER) as other,
        ):
            both = {process: says(process) for process in (one, other)}
            first = next(process for process, line in both.items() if line == "held")
            second = other if first is one else one
            assert both[second].startswith(f"Waiting for {file}, used by 1200")
            assert file.stat().st_uid == (12001 if first is one else 12002)
            first.kill()
            assert says(second) == "held"


@pytest.mark.parametrize("where", ["nowhere/x.lock", "link.lock"])
def test_a_lock_that_cannot_be_opened_has_a_remedy(where: str, tmp_path: Path) -> None:
    (tmp_path / "link.lock").symlink_to(tmp_path / "precious")
    with pytest.raises(ValueError, match=rf"Cannot lock .*{where}.*AGENTFLY_LOCKS"):
        with held([Device("GPU 1", (tmp_path / where,))], "the run mine", never):
            pass
    assert not (tmp_path / "precious").exists()


def test_a_gpu_has_its_uuid_in_every_process(driver: Driver, tmp_path: Path) -> None:
    driver(4)
    names = [f"GPU-00000000-0000-0000-0000-00000000000{number}" for number in (1, 2, 3, 4)]
    assert gpus.seen() == names
    assert numbered((3,), "/locks") == [
        Device("GPU 3", (Path(f"/locks/agentfly-{names[3]}.lock"),))
    ]


def test_too_many_gpus_are_refused(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    driver(2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "6,7")
    site = Site(device="cuda", ranks=4)
    with pytest.raises(ValueError, match=r"GPU 2 .* sees 2 GPUs \(CUDA_VISIBLE_DEVICES=6,7\)"):
        numbered(site.gpus, site.locks)


@pytest.mark.parametrize(
    ("count", "message"),
    [(0, "GPU 0 .* does not exist: this process sees 0 GPUs"), (-1, "cuInit failed with")],
)
def test_a_machine_without_gpus_is_refused(count: int, message: str, driver: Driver) -> None:
    driver(count)
    with pytest.raises(ValueError, match=message):
        numbered((0,), "/locks")


def test_a_terminal_waits_for_a_gpu_but_no_slot(driver: Driver, tmp_path: Path) -> None:
    driver(1)
    cpu, cuda = Site(locks=str(tmp_path)), Site(device="cuda", locks=str(tmp_path))
    taken = [numbered((0,), cuda.locks)[0].files[0], slot(1, cpu.locks).files[0]]
    messages: list[str] = []
    with holding("the run nightly-2026-11-21", *taken) as night:
        assert says(night) == "held"

        def tell(record: logging.LogRecord) -> bool:
            messages.append(record.getMessage())
            night.kill()
            return True

        with telling(tell), devices(cpu, cpu.gpus, "the run mine"):
            assert messages == []
            with devices(cuda, cuda.gpus, "the run mine"):
                assert messages[0].startswith(
                    "Waiting for GPU 0, used by the run nightly-2026-11-21 (process"
                )


@contextmanager
def telling(tell: Callable[[logging.LogRecord], bool]) -> Iterator[None]:
    """Collect the log messages for a terminal."""
    logging.getLogger("flows.flow_run").addFilter(tell)
    try:
        yield
    finally:
        logging.getLogger("flows.flow_run").removeFilter(tell)


def test_a_site_has_the_gpus_of_its_sampler_and_its_learner() -> None:
    assert Site(device="cuda", sampler_gpus=(3,), ranks=2).gpus == (0, 1, 3)
    assert Site(ranks=2).gpus == ()


def test_all_users_share_the_default_folder_of_locks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TMPDIR", "/somewhere")
    assert loading.site("local").locks == "/tmp"
    monkeypatch.setenv("AGENTFLY_LOCKS", "/shared")
    assert loading.site("local").locks == "/shared"
