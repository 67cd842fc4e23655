"""The line of user code that an error is reported with."""

import functools
import json
import types

from agentfly_core.system.formats import tracebacks
from agentfly_core.system.formats.strict_json import parse


def caught(error_of):
    try:
        error_of()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


OURS = compile(
    "def with_key(function): return function()", tracebacks.__file__, "exec", dont_inherit=True
)
at_key = types.FunctionType(OURS.co_consts[0], {})


def read_mine():
    return json.loads("{")


def test_the_line_is_the_innermost_line_of_user_code():
    line = read_mine.__code__.co_firstlineno + 1
    assert tracebacks.own_line(caught(read_mine)) == f"{__file__}:{line} in read_mine"


def test_errors_outside_of_user_code_have_no_line():
    ours = caught(lambda: parse("{"))
    while ours.__traceback__.tb_frame.f_code.co_filename == __file__:
        ours.__traceback__ = ours.__traceback__.tb_next
    assert tracebacks.own_line(ours) is None
    assert tracebacks.own_line(ValueError("never raised")) is None


def test_generated_code_has_no_line():
    generated = {}
    exec("def __init__(function): function()", generated)
    line = read_mine.__code__.co_firstlineno + 1
    error = caught(lambda: generated["__init__"](read_mine))
    assert tracebacks.own_line(error) == f"{__file__}:{line} in read_mine"
    error = caught(lambda: generated["__init__"](None))
    assert "<string>" not in tracebacks.own_line(error)


def test_a_traceback_keeps_user_lines_and_the_innermost_line():
    def both():
        return parse("[1")

    frames = [
        line.rpartition(" in ")[2]
        for line in tracebacks.trace(caught(both)).splitlines()
        if "File" in line
    ]
    assert frames == ["caught", "both", "parse", "raw_decode"]


def test_a_traceback_starts_with_the_first_user_line():
    def called_by_ours():
        return json.loads("{")

    error = caught(lambda: at_key(called_by_ours))
    error.__traceback__ = error.__traceback__.tb_next.tb_next
    assert error.__traceback__.tb_frame.f_code.co_name == "with_key"
    assert "with_key" not in tracebacks.trace(error)
    assert "called_by_ours" in tracebacks.trace(error)


def test_a_callable_object_has_the_place_of_its_class():
    class Agent:
        async def __call__(self, episode):
            return episode

    @functools.wraps(read_mine)
    def wrapped():
        return read_mine()

    assert tracebacks.defined(Agent()) == f"{__file__}:{Agent.__call__.__code__.co_firstlineno}"
    assert tracebacks.defined(wrapped) == f"{__file__}:{read_mine.__code__.co_firstlineno}"
