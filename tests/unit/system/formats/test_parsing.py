"""CPython 3.11 fails now and then where threads parse at the same time."""

import ast

import pytest

from agentfly_core.system.formats import parsing


def failing(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    failures = [SystemError("AST constructor recursion depth mismatch")] * times
    parse = ast.parse

    def fails(source: str, mode: str = "exec") -> ast.AST:
        if failures:
            raise failures.pop()
        return parse(source, mode=mode)

    monkeypatch.setattr(ast, "parse", fails)


def test_a_failed_parse_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, 3)
    assert ast.unparse(parsing.expression("41 + 58")) == "41 + 58"


def test_repeated_failures_end_with_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, 100)
    with pytest.raises(SystemError, match="depth mismatch"):
        parsing.expression("41 + 58")


def test_a_syntax_error_is_raised_at_once() -> None:
    with pytest.raises(SyntaxError):
        parsing.expression("41 +")
