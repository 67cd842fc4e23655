"""On a CPU learner and vLLM keep memory that an update, or a policy, has freed, for the next."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from agentfly_core.config.parts import AgentPart
from agentfly_core.config.site import Site
from agentfly_core.inference import vllm_server
from agentfly_core.system.hardware import GLIBC
from agentfly_core.training import client

SIZE = 256 * 2**20
PAGES = SIZE // resource.getpagesize()
TWICE = f"""
import ctypes, resource
libc, size = ctypes.CDLL(None), ctypes.c_size_t({SIZE})
libc.malloc.restype = ctypes.c_void_p
libc.prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE: each page is a fault of its own
for _ in range(2):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    block = ctypes.c_void_p(libc.malloc(size))
    libc.memset(block, 1, size)
    libc.free(block)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(GLIBC < [2, 36], reason="needs glibc 2.36 or later")
@pytest.mark.parametrize("service", ["learner", "vllm"])
def test_a_freed_block_is_reused_without_page_faults(service, tmp_path):
    if service == "learner":
        _, environment = client.launch("learner.sock", Site())
    else:
        _, environment = vllm_server.launch(
            Path("vllm.sock"), tmp_path, "float32", AgentPart(), Site(sampler="vllm")
        )
    done = subprocess.run(
        [sys.executable, "-c", TWICE], env=os.environ | environment, capture_output=True, check=True
    )
    first, again = map(int, done.stdout.split())
    assert first > 0.99 * PAGES
    assert again < 0.01 * PAGES
