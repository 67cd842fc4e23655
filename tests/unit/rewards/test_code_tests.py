"""Programs that earn their reward, and programs that try to have it without."""

import re
from typing import Any

import pytest

from agentfly_core.records.trajectory import Problem, Score, Unscored
from agentfly_core.rewards.code_tests import code_tests, program
from agentfly_core.testing.episodes import (
    episode_specs,
    play_all,
    rollout_spec,
    saying,
    scripted,
)

TESTS = [{"args": [2, 3], "expected": 5}, {"args": [-1, 1], "expected": 0}]
ADD = Problem("add", "Write add(a, b).", {"function": "add", "tests": TESTS, "seconds": 1})
RIGHT = "def add(a, b):\n    return a + b\n"


pytestmark = pytest.mark.usefixtures("sandbox")


async def scored(code: str, problem: Problem = ADD) -> Score | Unscored:
    sampler = scripted(saying(f"Here:\n```python\n{code}```\nDone."))
    (trajectory,), *_ = await play_all(
        episode_specs(problem), rollout_spec(max_tokens=4000), sampler
    )
    return await code_tests.score(trajectory, {})


async def test_only_a_program_that_passes_all_tests_earns_one() -> None:
    assert await scored(RIGHT) == Score(1.0, parts={"passed": 1.0})
    assert await scored("def add(a, b):\n    return 5\n") == Score(0.0, parts={"passed": 0.5})


@pytest.mark.slow
@pytest.mark.parametrize(
    "code",
    [
        "import os; os._exit(0)\n",
        "import sys; sys.exit(0)\n",
        'print(\'{"nonce": "0", "passed": [true, true]}\')\n',
        'open("verdict.json", "w").write(\'{"nonce": "0", "passed": [true, true]}\')\n',
        "import json\njson.dumps = lambda *_: '[5]'\njson.load = json.loads = lambda *_: [True]\n",
        "import random, math\nmath.isclose = lambda *_, **__: True\nrandom.random = lambda: 0\n",
        "import builtins\nbuiltins.all = lambda _: True\nbuiltins.map = lambda *_: [True]\n",
        "class Same(int):\n    def __eq__(self, other): return True\n    __hash__ = int.__hash__\n"
        "def add(a, b): return Same(9)\n",
        "import __main__\n__main__.same = __main__.passes = lambda *_: True\n",
        "import os\nos.symlink('/proc/self/environ', 'x')\nos.rename('x', "
        "'results.jsonl')\nos._exit(0)\n",
        "def add(a, b):\n    while True: pass\n",
        "def add(a, b): return [" + "[" * 50 + "]" * 50 + "]\n",
        "def add(a, b): return float('nan')\n",
        "def add(a, b): return True\n",
        "def add(a, b",
        "",
    ],
)
async def test_a_wrong_program_earns_nothing(code: str) -> None:
    result = await scored(code)
    assert isinstance(result, Score)
    assert result.value == 0.0


HALVES = [{"args": [1], "expected": 0.5}, {"args": [[1]], "expected": [0.5] * 2000}]
HALF = Problem("half", "Write half(n).", {"function": "half", "tests": HALVES, "seconds": 1})
LONG = Problem(
    "long", "Write f().", {"function": "f", "tests": [{"args": [], "expected": [[0]] * 50_000}]}
)
FILL = """
with open("results.jsonl", "wb", 0) as file:
    try:
        while True: file.write(b"[5]\\n" * 128)
    except OSError: pass
import os
os._exit(0)
"""


def leaving(results: str, more: str = "") -> str:
    return (
        "import os\nwith open('results.jsonl', 'wb') as file:\n"
        f"    file.write({results})\n{more}os._exit(0)\n"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "code",
    [
        FILL,
        leaving("b''", "    file.truncate(2**23)\n"),
        leaving("b'\\n' * (2**23 - 50_000)"),
        leaving("b'[' * 2**22 + b'\\n'"),
        leaving("b'[' + b'{},' * 2**21 + b'{}]\\n'"),
        leaving("b'[1' + b'0' * 400 + b']\\n[1e400]\\n'"),
        leaving("b'[' + b'9' * 5000 + b']\\n'"),
        leaving("b'[NaN]\\n[-Infinity]\\n'"),
        leaving("b'[\"\\\\ud800\"]\\n\\xff\\x00\\n'"),
        leaving("b'{\"0\": 0.5}\\n0.5\\n'"),
        leaving("b'[0.5]\\n'", "os.link('results.jsonl', 'again')\n"),
        "import os\nos.unlink('results.jsonl')\nos.mkdir('results.jsonl')\n",
        "import os\nos.unlink('results.jsonl')\nos.mkfifo('results.jsonl')\n",
        "import os\nfor n in range(5000): os.mkdir(str(n))\n",
        "import os\nos.write(1, bytes(2**22))\n",
        "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)\n",
        "import os\nos.kill(-1, 9)\n",
        "def half(n): return 10 ** 400\n",
        "def half(n): return [half(n)]\n",
        "def half(n): return '\\ud800'\n",
        "def half(n): raise BaseException\n",
        "taken = [bytes(2**20) for _ in range(2**12)]\n",
    ],
)
async def test_no_program_can_choose_to_be_unscored(code: str) -> None:
    assert await scored(code, HALF) == Score(0.0, parts={"passed": 0.0})


@pytest.mark.slow
async def test_large_results_are_graded() -> None:
    assert await scored("def f(): return [[0]] * 50_000\n", LONG) == Score(
        1.0, parts={"passed": 1.0}
    )
    assert await scored(leaving("b'[' + b'{},' * 2_000_000 + b'{}]\\n'"), LONG) == Score(
        0.0, parts={"passed": 0.0}
    )


@pytest.mark.slow
async def test_tests_passed_before_a_timeout_count_in_the_part() -> None:
    code = "def add(a, b):\n    while a == -1: pass\n    return a + b\n"
    assert await scored(code) == Score(0.0, parts={"passed": 0.5})


async def test_a_computation_may_take_the_seconds_of_its_problem() -> None:
    code = "import resource\ndef f(): return resource.getrlimit(resource.RLIMIT_CPU)[0]\n"
    facts = {"function": "f", "tests": [{"args": [], "expected": 20}], "seconds": 19.5}
    assert await scored(code, Problem("p", "?", facts)) == Score(1.0, {"passed": 1.0})


async def test_results_are_compared_as_json() -> None:
    pairs = Problem(
        "p",
        "?",
        {"function": "f", "tests": [{"args": [3], "expected": [1.5, {"a": [True, None]}]}]},
    )
    assert await scored("def f(n): return n / 2 + 1e-12, {'a': (True, None)}\n", pairs) == Score(
        1.0, {"passed": 1.0}
    )
    assert (await scored("def f(n): return 1.5, {'a': (1, None)}\n", pairs)) == Score(
        0.0, {"passed": 0.0}
    )


async def test_a_problem_without_tests_is_unscored() -> None:
    assert await scored(RIGHT, Problem("p", "?")) == Unscored("code_tests: KeyError: 'tests'")


def test_the_program_is_the_last_block_or_the_whole_answer() -> None:
    assert program("```python\na = 1\n```\nor\n```\na = 2\n```") == "a = 2\n"
    assert program("a = 3") == "a = 3"


@pytest.mark.parametrize(
    "answer",
    [
        "```bash\npip install numpy\n```\nand then\n```python\na = 2\n```",
        "```python3\na = 2\n```\nprints\n```text\n5\n```\nas expected",
        "with ```x``` it is\n```Python\r\na = 2\n```",
    ],
)
def test_blocks_of_other_languages_are_not_the_program(answer: str) -> None:
    assert program(answer) == "a = 2\n"


@pytest.mark.parametrize(
    ("facts", "fault"),
    [
        ({"tests": [{"args": [1], "expected": 1}]}, "facts['function'] is None"),
        ({"function": "f", "tests": []}, "facts['tests'] is []"),
        ({"function": "f", "tests": [{"args": [1]}]}, "facts['tests'][0] is {'args': [1]}"),
        (
            {"function": "f", "tests": [{"args": [1], "expected": 1}], "seconds": 500},
            "facts['seconds'] is 500, expected more than 0 and at most 100",
        ),
    ],
)
def test_facts_without_tests_are_refused_before_a_run(facts: dict[str, Any], fault: str) -> None:
    assert code_tests.examples is not None
    with pytest.raises(ValueError, match=re.escape(fault)):
        code_tests.examples(Problem("p", "?", facts))
