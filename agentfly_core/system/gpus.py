"""A program that prints the UUIDs of the GPUs visible to it, in CUDA's order.

    python -m agentfly_core.system.gpus

prints a line for each, such as `GPU-5d0f2b7e-9a7c-4c8e-8d3a-6a9f1e0b7c21`. It is a process of its
own since one that has asked the driver keeps it open, and can no longer change what it sees.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import uuid

from agentfly_core.system.module_search import for_children

NO_DEVICE = 100


def seen() -> list[str]:
    """The UUIDs of GPUs 0, 1, ... that CUDA_VISIBLE_DEVICES makes visible to this process.

    Raises ValueError where the driver cannot be asked.
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
            f"The site says `device: cuda`, and its GPUs cannot be counted: {done.stderr.strip()} "
            "Choose another --site, or see whether nvidia-smi finds the driver."
        )
    return done.stdout.split()


def main() -> None:
    """Print the identities; exits with the reason where the driver does not give them."""
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
