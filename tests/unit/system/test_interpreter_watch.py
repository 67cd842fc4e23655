import subprocess
import sys

import pytest

from tests.support.waiting import LIMIT

HOLDS = """
import asyncio, functools, re
from agentfly_core.authoring import calling
from agentfly_core.system import interpreter_watch

def explode(text: str) -> None:
    re.match("(a+)+$", text)

interpreter_watch.watch(seconds=1.5)
asyncio.run(calling.call(functools.partial(explode, "a" * 60 + "b"), 0.1, "The tool 'explode'"))
"""


@pytest.mark.slow
def test_code_that_blocks_the_interpreter_ends_the_program():
    done = subprocess.run(
        [sys.executable, "-c", HOLDS], capture_output=True, text=True, timeout=LIMIT
    )
    assert done.returncode == 1
    assert "Timeout" in done.stderr and "in explode" in done.stderr
