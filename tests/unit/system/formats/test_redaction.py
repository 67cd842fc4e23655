import asyncio
import io
import logging
from collections.abc import Iterator

import pytest

from agentfly_core.authoring.tool import tool
from agentfly_core.records.trajectory import Observation, ToolCall
from agentfly_core.system.formats.text import keeping_secrets, redact

PLANTED = "hf_Xq81kd93"


@pytest.fixture(autouse=True)
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", PLANTED)


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    stream, logger = io.StringIO(), logging.getLogger("planted")
    handler = logging.StreamHandler(stream)
    logger.addHandler(handler)
    made = logging.getLogRecordFactory()
    with keeping_secrets():
        yield stream
    logging.setLogRecordFactory(made)
    logger.removeHandler(handler)


def test_the_value_of_a_secret_variable_is_redacted() -> None:
    assert redact(f"Bearer {PLANTED}!") == "Bearer [HF_TOKEN]!"


def test_other_variables_and_short_values_are_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GREETING", "good morning")
    monkeypatch.setenv("SHORT_KEY", "yes")
    assert redact("good morning, yes") == "good morning, yes"


def test_a_password_in_a_url_is_replaced() -> None:
    assert (
        redact("at http://me:opensesame@host:5000/api") == "at http://me:[password]@host:5000/api"
    )
    assert redact("at http://host:5000/api, me@home") == "at http://host:5000/api, me@home"


def test_secrets_in_results_of_tools_are_redacted() -> None:
    @tool
    def peek(fail: bool) -> str:
        """Look around."""
        if fail:
            raise RuntimeError(f"401 for {PLANTED}")
        return f"token={PLANTED}"

    async def answers() -> list[Observation]:
        return [await peek.answer(ToolCall("peek", {"fail": fail}), {}) for fail in (False, True)]

    assert [result.content for result in asyncio.run(answers())] == [
        "token=[HF_TOKEN]",
        "RuntimeError: 401 for [HF_TOKEN]",
    ]


def test_secrets_in_logs_and_tracebacks_are_redacted(logged: io.StringIO) -> None:
    try:
        raise ValueError(f"not allowed with {PLANTED}")
    except ValueError:
        logging.getLogger("planted").exception("Refused %s", PLANTED)
    assert PLANTED not in logged.getvalue()
    assert logged.getvalue().startswith("Refused [HF_TOKEN]\nTraceback")
    assert logged.getvalue().endswith("ValueError: not allowed with [HF_TOKEN]\n")


def test_overlapping_blocks_redact_until_the_last_ends(
    logged: io.StringIO,
) -> None:
    logging.setLogRecordFactory(logging.LogRecord)
    first, second = keeping_secrets(), keeping_secrets()
    first.__enter__()
    factory = logging.getLogRecordFactory()
    second.__enter__()
    first.__exit__(None, None, None)
    logging.getLogger("planted").warning("with %s", PLANTED)
    second.__exit__(None, None, None)
    assert logged.getvalue() == "with [HF_TOKEN]\n"
    assert logging.getLogRecordFactory() is factory


def test_an_error_keeps_its_kind_and_loses_its_secrets() -> None:
    error = ValueError(f"GET /?token={PLANTED}", 401)
    error.add_note(f"with {PLANTED}")
    with pytest.raises(ValueError) as passed, keeping_secrets():
        raise error
    assert passed.value is error
    assert (error.args, error.__notes__) == (("GET /?token=[HF_TOKEN]", 401), ["with [HF_TOKEN]"])
