"""A calculator with + - * / // % ** and parentheses, for numbers of limited size."""

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping

from agentfly_core.authoring.tool import ToolError, tool
from agentfly_core.system.formats import parsing

Number = int | float
MAX_LENGTH = 200
MAX_EXPONENT_OF_TEN = 100
_CHARACTERS = re.compile(r"[0-9.eE+\-*/%() ]*")


@tool
async def calculator(expression: str) -> str:
    """Work out an arithmetic expression.

    Args:
        expression: numbers with + - * / // % ** and parentheses, for example (41+58)*2
    """
    return written(evaluate(expression))


def evaluate(expression: str) -> Number:
    """Compute an arithmetic expression, such as "(41+58)*2".

    Raises ToolError for a wrong expression, a division by zero, and numbers above 10**100.
    """
    if len(expression) > MAX_LENGTH:
        raise ToolError(
            f"The expression has {len(expression)} characters, at most {MAX_LENGTH} are read."
        )
    if not _CHARACTERS.fullmatch(expression):
        raise ToolError(
            f"{expression!r} is not arithmetic: use numbers, + - * / // % ** and parentheses only."
        )
    try:
        return _value(parsing.expression(expression.strip()).body)
    except SyntaxError:
        raise ToolError(f"{expression!r} is not a complete expression.") from None
    except ZeroDivisionError:
        raise ToolError("Division by zero.") from None


def written(number: Number) -> str:
    """Format a number.

    A float gets at most 12 significant digits. For example, the text is "0.3" for 0.1 + 0.2, and
    "5" for 5.0.
    """
    # a float has 15 exact digits
    if isinstance(number, float) and number.is_integer() and abs(number) < 1e15:
        number = int(number)
    return str(number) if isinstance(number, int) else format(number, ".12g")


def _value(node: ast.expr) -> Number:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return _bounded(node.value)
    if isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
        return _UNARY[type(node.op)](_value(node.operand))
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        return _bounded(_BINARY[type(node.op)](_value(node.left), _value(node.right)))
    raise ToolError("Use numbers, + - * / // % ** and parentheses only.")


def _bounded(number: Number | complex) -> Number:
    if isinstance(number, complex):
        raise ToolError("The result is not a real number.")
    if not math.isfinite(number) or abs(number) > 10**MAX_EXPONENT_OF_TEN:
        raise ToolError(f"A number here is larger than 10**{MAX_EXPONENT_OF_TEN}.")
    return number


def _divide(left: Number, right: Number) -> Number:
    # a float would round large integers
    exact = isinstance(left, int) and isinstance(right, int) and right != 0 and left % right == 0
    return left // right if exact else left / right


def _power(base: Number, exponent: Number) -> Number | complex:
    if base == 0 and exponent < 0:
        raise ZeroDivisionError
    # checked before the calculation, because the result could fill the memory
    if base != 0 and exponent * math.log10(abs(base)) > MAX_EXPONENT_OF_TEN:
        raise ToolError(
            f"{written(base)} to the power of {written(exponent)} is larger than "
            f"10**{MAX_EXPONENT_OF_TEN}."
        )
    result: Number | complex = base**exponent
    return result


_UNARY: Mapping[type[ast.unaryop], Callable[[Number], Number]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}
_BINARY: Mapping[type[ast.operator], Callable[[Number, Number], Number | complex]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: _divide,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}
