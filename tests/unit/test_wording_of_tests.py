"""Tests expect a message's key and value, not its sentence, and have short names."""

import ast
import re

from tests.support.project import ROOT

SENTENCE = re.compile(r"(?<![\w.])[A-Za-z]+(?:,? [A-Za-z]+){3,}(?!\w)")
SENTENCES = 40  # of about 520 expected messages; their sentences may be rewritten freely
LONGEST = 60  # letters of a name after `test_`
FILES = sorted((ROOT / "tests").rglob("*.py"))


def sentences(source):
    """Lines with four or more words of prose in a row in `match`. Values and keys end a row."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.keyword) and node.arg == "match":
            constants = [n for n in ast.walk(node.value) if isinstance(n, ast.Constant)]
            if any(SENTENCE.search(str(one.value)) for one in constants):
                yield node.value.lineno


def long_names(source):
    """Names of tests that are longer than LONGEST."""
    names = re.findall(r"^\s*(?:async )?def test_(\w+)", source, re.MULTILINE)
    return [name for name in names if len(name) > LONGEST]


def test_four_words_in_a_row_are_a_sentence():
    lines = [
        'raises(OSError, match="the shop is closed")',
        'raises(OSError, match=r"rank 2, which the job has, was given")',
        'raises(OSError, match=f"{port} is used by another")',
        'raises(OSError, match="group_size.* got 7, expected 8 of them")',
        'raises(OSError, match="API_KEY is not set")',
    ]
    assert list(sentences("\n".join(lines))) == [1, 2, 3]


def test_few_tests_expect_a_sentence():
    lines = [
        f"{file.relative_to(ROOT)}:{line}" for file in FILES for line in sentences(file.read_text())
    ]
    assert len(lines) <= SENTENCES, "\n".join(lines)


def test_names_of_tests_have_at_most_60_letters():
    assert long_names(f"async def test_{'a' * 61}():\ndef test_{'b' * 60}():") == ["a" * 61]
    assert [name for file in FILES for name in long_names(file.read_text())] == []
