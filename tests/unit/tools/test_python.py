import pytest

from agentfly_core.authoring.environment import ServiceFailure
from agentfly_core.config import loading
from agentfly_core.experiment import checks
from agentfly_core.records.trajectory import Observation, ToolCall
from agentfly_core.system.service import SANDBOX
from agentfly_core.tools.python import python
from tests.support.project import ROOT

pytestmark = pytest.mark.usefixtures("sandbox")


async def ask(code: str) -> Observation:
    return await python.answer(ToolCall("python", {"code": code}), {})


async def test_a_program_is_run_and_its_output_returned() -> None:
    code = "import math\ndef fact(n): return n * fact(n - 1) if n else 1\n"
    code += (
        "def all_of(names): return [math.gcd(fact(n), 10) for n in names]\nprint(all_of(range(6)))"
    )
    assert await ask(code) == Observation("python", "[1, 1, 2, 2, 2, 10]")


async def test_an_exception_is_reported_after_the_output() -> None:
    observation = await ask("print('x is 0')\nx = 0\nprint(1 / x)")
    assert observation.error
    assert observation.content.startswith(
        'x is 0\nTraceback (most recent call last):\n  File "/sandbox/main.py", line 3'
    )
    assert observation.content.endswith("ZeroDivisionError: division by zero")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("bytearray(10 << 30)", "Stopped: it needed more than 512 MB of memory."),
        ("while True: print('x' * 1000)", "Stopped: it printed more than 1 MB."),
        (
            "open('x', 'wb').write(bytes(100 << 20))",
            "Stopped: it wrote more than 64 MB or 4096 files.",
        ),
        ("import os; os.kill(os.getpid(), 9)", "Ended by signal 9."),
        ("import os; os._exit(3)", "Ended with exit code 3."),
    ],
)
async def test_a_forbidden_operation_is_a_tool_error(code: str, message: str) -> None:
    observation = await ask(code)
    assert observation.error
    assert observation.content.endswith(message)


async def test_a_program_without_output_is_told_to_print() -> None:
    assert await ask("6 * 7") == Observation("python", "The program printed nothing.")


async def test_a_long_output_is_cut_to_eight_kilobytes() -> None:
    observation = await ask("print('x' * 100_000)")
    assert not observation.error
    assert 8192 <= len(observation.content) < 8300
    assert "[... 91808 bytes omitted ...]" in observation.content


async def test_the_model_never_reads_that_a_sandbox_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv(SANDBOX, "bubblewrap")
    with pytest.raises(ServiceFailure, match="bubblewrap"):
        await ask("print(1)")


def test_an_experiment_without_a_sandbox_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(SANDBOX, "bubblewrap")
    monkeypatch.setenv("PATH", "")
    settings = loading.read(str(ROOT / "conf/python-tool.yaml")).settings
    with pytest.raises(OSError, match=r"No sandbox .*bubblewrap"):
        checks.check(settings)
