"""List the UUIDs of visible GPUs in CUDA's order: `python -m agentfly_core.system.gpus`.

This is a separate program, because a process that has loaded the driver can no longer change its
visible GPUs.
"""

import ctypes
import subprocess
import sys
import uuid

from agentfly_core.system.module_search import for_children

NO_DEVICE = 100


def seen() -> list[str]:
    """Return the UUIDs of the visible GPUs: `["GPU-5d0f2b7e-...", ...]`.

    Raises ValueError if the driver is missing or fails.
    """
    done = subprocess.run(
        [sys.executable, "-m", "agentfly_core.system.gpus"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        env=for_children(),
    )
    if done.returncode:
        raise ValueError(
            f"The site has `device: cuda`, but this machine's GPUs cannot be listed: "
            f"{done.stderr.strip() or f'exit status {done.returncode}.'} Check nvidia-smi, or "
            "choose another --site."
        )
    return done.stdout.split()


def main() -> None:
    """Print the UUIDs of the visible GPUs. If the driver fails, exit with an error message."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        sys.exit(f"NVIDIA's driver is not installed ({error}).")
    if (code := driver.cuInit(0)) == NO_DEVICE:
        return
    _succeeded("cuInit", code)
    count = ctypes.c_int()
    _succeeded("cuDeviceGetCount", driver.cuDeviceGetCount(ctypes.byref(count)))
    for number in range(count.value):
        device, identity = ctypes.c_int(), ctypes.create_string_buffer(16)
        _succeeded("cuDeviceGet", driver.cuDeviceGet(ctypes.byref(device), number))
        _succeeded("cuDeviceGetUuid", driver.cuDeviceGetUuid_v2(identity, device))
        print(f"GPU-{uuid.UUID(bytes=identity.raw)}")


def _succeeded(call: str, code: int) -> None:
    if code:
        sys.exit(f"The driver's {call} failed with the CUDA error {code}.")


if __name__ == "__main__":
    main()
