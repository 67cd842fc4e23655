import math

import pytest
from hypothesis import given, strategies

from agentfly_core.authoring.tool import ToolError
from agentfly_core.records.trajectory import Observation, ToolCall
from agentfly_core.tools.calculator import calculator, evaluate, written


async def ask(expression: str) -> Observation:
    return await calculator.answer(ToolCall("calculator", {"expression": expression}), {})


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("41+58", "99"),
        (" 41 + 58 ", "99"),
        ("41-58", "-17"),
        ("41*58", "2378"),
        ("7/2", "3.5"),
        ("10/4*2", "5"),
        ("100/10", "10"),
        ("1/3", "0.333333333333"),
        ("0.1+0.2", "0.3"),
        ("7//2", "3"),
        ("-7%3", "2"),
        ("2**10", "1024"),
        ("2**-1", "0.5"),
        ("2**0.5", "1.41421356237"),
        ("-(2+3)*+4", "-20"),
        ("((1))", "1"),
        ("1e3", "1000"),
        ("10**20/10", "10000000000000000000"),
        ("0*-1.5", "0"),
        ("1**10**50", "1"),
    ],
)
async def test_arithmetic_is_calculated(expression: str, result: str) -> None:
    assert await ask(expression) == Observation("calculator", result)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("__import__('os').system('true')", "is not arithmetic"),
        ("open", "is not arithmetic"),
        ("e", "Use numbers"),
        ("1 if 1 else 2", "is not arithmetic"),
        ("(1)(2)", "Use numbers"),
        ("2^3", "is not arithmetic"),
        ("1j", "is not arithmetic"),
        ("1\0", "is not arithmetic"),
        ("٤+١", "is not arithmetic"),
        ("", "is not a complete expression"),
        ("41+", "is not a complete expression"),
        ("(" * 150, "is not a complete expression"),
        ("1/0", "Division by zero"),
        ("1%0", "Division by zero"),
        ("0**-1", "Division by zero"),
        ("(-8)**0.5", "not a real number"),
        ("9**9**9**9", "larger than 10**100"),
        ("10**100*10", "larger than 10**100"),
        ("1e999", "larger than 10**100"),
        ("0.5**-999999", "larger than 10**100"),
        ("9" * 190, "larger than 10**100"),
        ("9" * 5000, "5000 characters"),
        ("(" * 50_000 + ")" * 50_000, "100000 characters"),
    ],
)
async def test_other_input_is_reported_to_the_model(expression: str, message: str) -> None:
    observation = await ask(expression)
    assert observation.error
    assert message in observation.content


@given(strategies.text("0123456789.eE+-*/%() ", max_size=60))
def test_any_expression_ends_in_a_number_or_a_tool_error(
    expression: str,
) -> None:
    try:
        number = evaluate(expression)
    except ToolError:
        return
    assert math.isfinite(number)
    assert len(written(number)) <= 102


@given(
    strategies.integers(0, 99), strategies.integers(0, 99), strategies.sampled_from(["+", "-", "*"])
)
def test_two_digit_arithmetic_is_exact(a: int, b: int, sign: str) -> None:
    right = {"+": a + b, "-": a - b, "*": a * b}[sign]
    assert written(evaluate(f"{a}{sign}{b}")) == str(right)
