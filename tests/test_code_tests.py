"""Programs that earn their reward, and programs that try to have it without."""

from __future__ import annotations

import pytest
from letters import assigned, collected, playbook, scripted

from agentfly_core.record import Problem, Score, Unscored
from agentfly_core.rewards.code_tests import code_tests, program

TESTS = [{"args": [2, 3], "expected": 5}, {"args": [-1, 1], "expected": 0}]
ADD = Problem("add", "Write add(a, b).", {"function": "add", "tests": TESTS, "seconds": 1})
RIGHT = "def add(a, b):\n    return a + b\n"


pytestmark = pytest.mark.usefixtures("sandbox")


async def scored(code: str, problem: Problem = ADD) -> Score | Unscored:
    sampler = scripted(lambda problem, chain, turn: f"Here:\n```python\n{code}```\nDone.")
    (trajectory,), *_ = await collected(assigned(problem), playbook(max_tokens=4000), sampler)
    return await code_tests.score(trajectory, {})


async def test_a_right_program_is_worth_one_and_a_half_right_one_nothing_but_its_part() -> None:
    assert await scored(RIGHT) == Score(1.0, parts={"passed": 1.0})
    assert await scored("def add(a, b):\n    return 5\n") == Score(0.0, parts={"passed": 0.5})


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
        "import os\nos.symlink('/proc/self/environ', 'x')\nos.rename('x', 'results.jsonl')\nos._exit(0)\n",
        "def add(a, b):\n    while True: pass\n",
        "def add(a, b): return [" + "[" * 50 + "]" * 50 + "]\n",
        "def add(a, b): return float('nan')\n",
        "def add(a, b): return True\n",
        "def add(a, b",
        "",
    ],
)
async def test_a_program_that_does_not_add_is_worth_nothing(code: str) -> None:
    found = await scored(code)
    assert isinstance(found, Score)
    assert found.value == 0.0


async def test_what_was_right_before_a_program_hangs_counts_in_its_part() -> None:
    code = "def add(a, b):\n    while a == -1: pass\n    return a + b\n"
    assert await scored(code) == Score(0.0, parts={"passed": 0.5})


async def test_results_are_compared_as_json() -> None:
    pairs = Problem("p", "?", {"function": "f", "tests": [{"args": [3], "expected": [1.5, {"a": [True, None]}]}]})
    assert await scored("def f(n): return n / 2 + 1e-12, {'a': (True, None)}\n", pairs) == Score(1.0, {"passed": 1.0})
    assert (await scored("def f(n): return 1.5, {'a': (1, None)}\n", pairs)) == Score(0.0, {"passed": 0.0})


async def test_a_problem_without_tests_is_unscored_and_not_wrong() -> None:
    assert await scored(RIGHT, Problem("p", "?")) == Unscored("code_tests: KeyError: 'tests'")


def test_the_program_is_the_last_block_of_an_answer_or_all_of_it() -> None:
    assert program("```python\na = 1\n```\nor\n```\na = 2\n```") == "a = 2\n"
    assert program("a = 3") == "a = 3"
