"""Rewards for mathematically right answers.

math-verify parses answers as LaTeX and compares values. An answer that copies the question is
wrong: 41+58 does not answer "What is 41+58?".
"""

import logging
import math as mathematics
import re
from functools import partial
from typing import Any

from agentfly_core.authoring.reward import reward
from agentfly_core.records.trajectory import Ending, Examples, Problem, Score, Trajectory
from agentfly_core.rewards.format import tool_answers
from agentfly_core.rewards.gold import examples, right_answers
from agentfly_core.rewards.limited import limited
from agentfly_core.rewards.quantities import decimal, in_base, plain, without_unit
from agentfly_core.system.module_search import require_package

LONGEST = 1000
WRONG_WITH_TOOL = 0.1
PLACES = 6
_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
_ANSWER_MARK = re.compile(r"####|\banswer(?:\s+is\b|\s*:)(?:\s*:)?", re.IGNORECASE)
_NAMED = re.compile(r"^[A-Za-z](?:_\w)?(?:\([a-z]\))?\s*=(?!=)")
_EQUALS = re.compile(r"(?<![<>!:=])=")
_INTEGER = re.compile(r"[-+]?(?:\d+|\d{1,3}(?:,\d{3})+)(?:\.0*)?(?:\\%)?", re.ASCII)
_NUMBER = re.compile(
    r"[-+]?(?:(?:\d+|\d{1,3}(?:,\d{3})+)?\.?\d*|\\frac\{-?\d+\}\{\d+\})(?:\\%)?", re.ASCII
)
_TERM = re.compile(r"[-+]?[\d.]+([A-Za-z])")
_WORDS = re.compile(r"(?:\\[a-z]+\{)?\s*((?i:no)|[A-Za-z][A-Za-z' -]{2,}?)\s*\}?")

# math-verify warns that its timeouts are off. Here, limits of the kernel replace them
logging.getLogger("math_verify").setLevel(logging.ERROR)
_READY = partial(require_package, "math-verify==0.9.0", "math")


@reward(
    process=True,
    timeout=300.0,
    ready=_READY,
    examples=examples(lambda right: [f"7{stated(right)}"]),
)
def math(trajectory: Trajectory) -> float:
    """1 if the answer has the value of a right answer (the fact `answer` of the problem), else 0.

    The function `stated` extracts the answer from the reply, for example from a box.

    - Integers may be written as 99, 99.0 or 1,234. All other numbers may be written as fractions,
      mixed numbers, or decimals. Decimals are compared after rounding to 6 decimal places. Values
      of at most 0.1 (in absolute value) are rounded to at least 6 significant digits.
    - A number with a base, such as 1010_2, must have the expected base.
    - For words, case does not matter. All other answers are compared by their mathematical value.
    - Units are ignored.
    - An answer copied from the prompt is wrong, unless it is a number, or has exactly the text of a
      right answer. For words, case does not matter here either.
    - An answer is wrong if the comparison with the right answer takes more than 5 s.
    """
    return _judged(trajectory)


def _readable(problem: Problem) -> Examples:
    """Check the fact `answer` of a problem, and return no example answers.

    An example answer lacks a tool call, so `math_with_tool` would return 0 for it. Raises
    ValueError if the fact is missing, has a wrong type, or contains no answer.
    """
    _rights(problem)
    return Examples((), ())


@reward(process=True, timeout=300.0, ready=_READY, examples=_readable)
def math_with_tool(trajectory: Trajectory) -> Score:
    """A variant of the reward `math` that requires the use of a tool.

    Without a tool result, the reward is 0. With a tool result, the reward is 1 for a right answer
    and 0.1 for a wrong answer. Errors, and results of the tool that ends the episode, do not count
    as tool results. The partial score `right` is the reward `math`.
    """
    right = _judged(trajectory)
    ended = trajectory.ending is Ending.TERMINAL
    answers = tool_answers(trajectory)
    used = any(not answer.error for answer in (answers[:-1] if ended else answers))
    return Score(max(right, WRONG_WITH_TOOL) if used else 0.0, parts={"right": right})


def stated(text: str) -> str:
    """Extract the answer from a text: `stated("So it is $\\boxed{99}$.")` returns "99".

    The answer is the content of the last `\\boxed{...}` or `\\fbox{...}`. If this box is not
    closed, the answer is empty. In a text without a box, the answer is the rest of the line after
    the last "####", "answer is" or "answer:". In all other texts, the answer is the whole text.
    """
    if boxes := [*_BOX.finditer(text)]:
        start = boxes[-1].end()
        return _bare(text[start : _closing(text, start)])
    if matches := [*_ANSWER_MARK.finditer(text)]:
        return _bare(text[matches[-1].end() :].lstrip().partition("\n")[0])
    return _bare(text)


def _bare(text: str) -> str:
    """Remove markup and the full stop around a text: `_bare("**$99$**.")` is "99"."""
    bare = text.strip().rstrip(".").strip("$* \n")
    for opening, closing in (("\\(", "\\)"), ("\\[", "\\]")):
        bare = bare.removeprefix(opening).removesuffix(closing)
    return bare.strip().rstrip(".")


def _closing(text: str, start: int) -> int:
    """Return the index of the closing brace. The opening brace is directly before `start`.

    Without a closing brace, return `start`.
    """
    depth = 1
    for place in range(start, len(text)):
        depth += (text[place] == "{") - (text[place] == "}")
        if depth == 0:
            return place
    return start


def _judged(trajectory: Trajectory) -> float:
    answer, prompt = stated(trajectory.answer or ""), trajectory.problem.prompt
    return float(any(_is_right(answer, one, prompt) for one in _rights(trajectory.problem)))


def _rights(problem: Problem) -> list[str]:
    """Return the right answers of a problem, as `stated` extracts them.

    Raises ValueError if `stated` returns an empty text for a right answer.
    """
    rights = {fact: stated(fact) for fact in right_answers(problem)}
    for fact, right in rights.items():
        if not right:
            raise ValueError(f"facts['answer'] is {fact!r:.80}, expected a text with an answer")
    return [*rights.values()]


def _is_right(answer: str, right: str, prompt: str) -> bool:
    if not _EQUALS.search(right):
        answer = _NAMED.sub("", answer).strip()
    if _squeezed(answer) == _squeezed(right):
        return True
    # longer answers take longer to parse
    if len(answer) > max(LONGEST, 2 * len(right)):
        return False
    answer, right = without_unit(answer), without_unit(right)
    if in_base(answer) or in_base(right):
        with_base = (in_base(text) or in_base(f"{text}_10") for text in (answer, right))
        return len({*with_base}) == 1
    # p - q is a term: it lacks two letters in a row
    if (words := _WORDS.fullmatch(right)) and re.search("[A-Za-z]{2}", right):
        other = _WORDS.fullmatch(answer)
        return other is not None and _in_words(other) == _in_words(words)
    if _is_excluded(answer, right, prompt):
        return False
    # math-verify would take the s in the term 4s for a unit
    for text, counterpart in ((right, answer), (answer, right)):
        if (term := _TERM.fullmatch(text)) and term[1] not in counterpart:
            return False
    # the right answer is parsed without limits, because an error in it must be reported
    expected = _read(decimal(right))
    return bool(limited(partial(_equal, expected, decimal(answer))))


def _in_words(match: re.Match[str]) -> str:
    return " ".join(match[1].casefold().split())


def _is_excluded(answer: str, right: str, prompt: str) -> bool:
    """Whether an answer is ruled out before its value is compared with the right answer.

    An answer is ruled out if it is empty, has unbalanced braces, or is copied from the prompt
    (except numbers). An equation is ruled out if the right answer is not an equation.
    """
    return (
        not answer
        or _closing(f"{answer}}}", 0) != len(answer)
        or bool(_EQUALS.search(answer) and not _EQUALS.search(right))
        or (not _NUMBER.fullmatch(answer) and _squeezed(answer) in _squeezed(plain(prompt)))
    )


def _equal(expected: list[Any], answer: str) -> float:
    """Return 1.0 if an answer has the value of `expected`, else 0.0.

    If `expected` is an integer, the answer must be an integer, too. If `expected` is another
    number, the answer must be a number. Before the comparison, decimals are rounded to 6 decimal
    places (the constant PLACES). If the absolute value of `expected` is at most 0.1, decimals are
    rounded to at least 6 significant digits.
    """
    from math_verify import verify

    parsed = _read(answer)
    for form in (_INTEGER, _NUMBER):
        if form.fullmatch(_text(expected)):
            if not form.fullmatch(_text(parsed)):
                return 0.0
            break
    number, places = expected[0], PLACES
    if getattr(number, "is_Number", False) and number.is_finite:
        # numbers below 0.1 keep PLACES significant digits
        size = abs(float(number))
        places += max(0, int(-mathematics.log10(size))) if size else PLACES
    return float(verify(expected, parsed, float_rounding=places, timeout_seconds=None))


def _read(text: str) -> list[Any]:
    """Parse a text with math-verify. Return the values, followed by the normalised text."""
    from math_verify import LatexExtractionConfig, parse

    escaped = re.sub(r"(?<!\\)%", r"\\%", text)
    latex = [LatexExtractionConfig(boxed_match_priority=0)]
    parsed: list[Any] = parse(f"\\boxed{{{escaped}}}", latex, parsing_timeout=None)
    return parsed


def _text(parsed: list[Any]) -> str:
    return str(parsed[-1]).strip() if parsed else ""


def _squeezed(text: str) -> str:
    """Remove spaces and dollar signs, except between two digits, because 1 1/2 is not 11/2."""
    return re.sub(r"(?<!\d)[\s$]+|[\s$]+(?!\d|\s)", "", text)
