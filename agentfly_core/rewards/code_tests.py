"""A reward for programs that pass hidden tests.

The program runs in one sandbox on the tests' arguments. A second sandbox without model code grades
the results, so the program cannot fake the verdict. If the results make the grading fail, the
reward is 0.
"""

import json
import math
import re
import secrets
from collections.abc import Mapping

from agentfly_core.authoring.reward import reward
from agentfly_core.records.trajectory import Examples, Problem, Score, Trajectory
from agentfly_core.sandbox.guest.protocol import MIB, Limits, Status
from agentfly_core.sandbox.preflight import chosen
from agentfly_core.sandbox.running import as_bytes, run

SECONDS = 10.0
MOST_SECONDS = 100.0
"""The largest time limit in seconds that a problem may set for its tests, as
`Problem.facts["seconds"]`.
With a longer limit, the reward itself could time out, and the episode would lack a score.
"""
DISK = 8 * MIB  # above the size of the files
LONGER = 100  # times the length of the expected result is wrong
_BLOCK = re.compile(r"```([\w+#.-]*)[ \t\r]*\n(.*?)```", re.DOTALL)
_LABELS = ("", "python", "python3", "py")
_CALLS = """
import json
with open("calls.json") as file:
    name, calls = json.load(file)
import solution
with open("results.jsonl", "w") as file:
    for arguments in calls:
        try:
            result = json.dumps([getattr(solution, name)(*arguments)])
        except Exception:  # the program may raise anything
            result = "[]"
        file.write(result + "\\n")
        file.flush()
"""
_GRADES = """
import itertools, json, math

def same(got, expected):
    if isinstance(expected, float) and type(got) in (int, float):
        return math.isclose(got, expected, rel_tol=1e-9, abs_tol=1e-9)
    if type(got) is not type(expected):
        return False
    if isinstance(expected, list):
        return len(got) == len(expected) and all(map(same, got, expected))
    if isinstance(expected, dict):
        return got.keys() == expected.keys() and all(
            same(got[key], expected[key]) for key in expected
        )
    return got == expected

def passes(line, expected):
    if len(line) > LONGER * len(json.dumps([expected])):
        return False
    try:
        results = json.loads(line)
        return len(results) == 1 and same(results[0], expected)
    except Exception:  # an unreadable result is wrong
        return False

with open("grading.json") as file:
    nonce, right = json.load(file)
with open("results.jsonl", "rb") as file:
    lines = itertools.chain((line for line in file if line.endswith(b"\\n")), itertools.repeat(b""))
    passed = [passes(line, expected) for line, expected in zip(lines, right)]
with open("verdict.json", "w") as file:
    json.dump({"nonce": nonce, "passed": passed}, file)
""".replace("LONGER", str(LONGER))


def _readable(problem: Problem) -> Examples:
    """Check the facts `function`, `tests` and `seconds` of a problem.

    Raises ValueError for wrong facts. Returns no example answers, because the problem does not
    contain a right program.
    """
    function, tests = problem.facts.get("function"), problem.facts.get("tests")
    if not isinstance(function, str) or not function.isidentifier():
        raise ValueError(f"facts['function'] is {function!r:.80}, expected the name of a function")
    if not isinstance(tests, list | tuple) or not tests:
        raise ValueError(f"facts['tests'] is {tests!r:.80}, expected a list of tests")
    for number, test in enumerate(tests):
        if not isinstance(test, Mapping) or not {"args", "expected"} <= test.keys():
            example = '{"args": [2, 3], "expected": 5}'
            raise ValueError(f"facts['tests'][{number}] is {test!r:.80}, expected {example}")
    seconds = problem.facts.get("seconds", SECONDS)
    if not isinstance(seconds, int | float) or not 0 < seconds <= MOST_SECONDS:
        expected = f"more than 0 and at most {MOST_SECONDS:g}"
        raise ValueError(f"facts['seconds'] is {seconds!r:.80}, expected {expected}")
    return Examples((), ())


@reward(timeout=120.0, ready=chosen, examples=_readable)
async def code_tests(trajectory: Trajectory) -> Score:
    """1 if the program in the answer passes every hidden test, else 0.

    The partial score `passed` is the share of passed tests. The function `program` extracts the
    program from the answer. The facts of the problem are:

    - `function`: the name of the function that the tests call
    - `tests`: a list of tests such as `{"args": [2, 3], "expected": 5}`, with JSON types. Tuples
      count as lists. Floats may have a relative or absolute error of at most 1e-9.
    - `seconds` (optional): a time limit for all calls together. The limit applies to the elapsed
      time and to the CPU time. The default is 10, and the maximum is 100.
    """
    facts = trajectory.problem.facts
    tests = list(facts["tests"])
    calls = json.dumps([facts["function"], [test["args"] for test in tests]])
    solution = program(trajectory.answer or "")
    files: dict[str, str | bytes] = {"solution.py": solution, "calls.json": calls}
    results = await _run(_CALLS, files, "results.jsonl", float(facts.get("seconds", SECONDS)))
    nonce = secrets.token_hex(16)
    grading = json.dumps([nonce, [test["expected"] for test in tests]])
    files = {"results.jsonl": results or b"", "grading.json": grading}
    verdict = json.loads((await _run(_GRADES, files, "verdict.json", SECONDS)) or "{}")
    # a wrong nonce means that the tested program manipulated the grading
    graded = verdict["passed"] if verdict.get("nonce") == nonce else [False] * len(tests)
    passed = [right is True for right in graded]
    return Score(float(all(passed)), parts={"passed": sum(passed) / len(passed)})


def program(answer: str) -> str:
    """Return the program in an answer: the last ``` block with Python's label or without a label.

    If the answer lacks such a block, the whole answer is the program.
    """
    pairs: list[tuple[str, str]] = _BLOCK.findall(answer)
    blocks = [code for label, code in pairs if label.lower() in _LABELS]
    return blocks[-1] if blocks else answer


async def _run(
    code: str, files: Mapping[str, str | bytes], result: str, seconds: float
) -> bytes | None:
    given = sum(len(as_bytes(content)) for content in files.values())
    limits = Limits(wall=seconds, cpu=math.ceil(seconds), disk=DISK + given)
    done = await run(code, files, limits=limits, collect=[result])
    if done.status is Status.UNAVAILABLE:
        raise RuntimeError(f"the sandbox failed: {done.stderr}")
    return done.files.get(result)
